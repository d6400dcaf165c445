-- The sliding windows of one vendor, in two sorted sets: KEYS[1] counts the whole vendor, KEYS[2..] one credential each.
--
-- A place is a member whose score is the moment (microseconds) its call completed; while the call is in flight, the
-- latest moment at which it can complete. It counts in a window of W until score + W. Notes share the sets, so that
-- they are lost together with what they vouch for: the seal (score +inf) names the generation and the run of the
-- server, negative scores carry `reach` (how far back places are kept) and `c<id>` (credentials that have a set
-- under this seal).
--
-- Two clocks, the server's and the caller's: a place is stamped by the later and asked for by the earlier, so that
-- no place is free too early as long as one of them goes right.
--
-- ARGV: verb, server clock ('' = the server's own), caller's clock, then the words of the verb.
local vendor, verb, caller = KEYS[1], ARGV[1], tonumber(ARGV[3])
local SKEW, CHUNK = 2000000, 1000  -- CHUNK keeps unpack below Lua's limit of some 8,000

local function exact(number) return string.format('%.0f', number) end  -- '..' would round to 14 digits

local clock = tonumber(ARGV[2])
if not clock then
  local time = redis.call('TIME')
  clock = time[1] * 1000000 + time[2]
end
local ahead = clock - caller
local skewed = math.abs(ahead) > SKEW
local early, late = math.min(clock, caller), math.max(clock, caller)

local function seal(generation)
  local info = redis.pcall('INFO', 'server')  -- another run may have lost the last grants: a restart, a late replica
  return 'gen:' .. generation .. ':' .. (type(info) == 'string' and info:match('run_id:(%x+)') or '')
end

local function each(key, command, flags, names, score)
  for first = 1, #names, CHUNK do
    local words = { unpack(flags) }
    for i = first, math.min(first + CHUNK - 1, #names) do
      if score then words[#words + 1] = score end
      words[#words + 1] = names[i]
    end
    redis.call(command, key, unpack(words))
  end
end

local function listed(text)
  local names = {}
  for name in text:gmatch('%S+') do names[#names + 1] = name end
  return names
end

local function occupants(window)
  return '(' .. exact(math.max(early - window, 0)), '(+inf'
end

-- acquire: seal's generation, credential id, grant id, want, least, hold, number of vendor limits, (units, window)...
local function acquire()
  local mark, member, credential = seal(ARGV[4]), 'c' .. ARGV[5], KEYS[2]
  local want, least, hold, split = tonumber(ARGV[7]), tonumber(ARGV[8]), tonumber(ARGV[9]), tonumber(ARGV[10])
  if skewed then return { 'skewed', exact(ahead) } end
  if not redis.call('ZSCORE', vendor, mark) then return { 'lost' } end
  local known, reach = redis.call('ZSCORE', vendor, member), -tonumber(redis.call('ZSCORE', vendor, 'reach'))
  if known and not redis.call('ZSCORE', credential, mark) then return { 'lost' } end

  local wait = 0
  for i = 11, #ARGV, 2 do
    local key = i < 11 + 2 * split and vendor or credential
    local units, window = tonumber(ARGV[i]), tonumber(ARGV[i + 1])
    if window > reach then return { 'lost' } end  -- older places are gone: only the ledger knows them
    if known or key == vendor then
      local used = redis.call('ZCOUNT', key, occupants(window))
      local over = used + least - units
      if over > 0 then
        local from, to = occupants(window)
        local leaver = redis.call('ZRANGEBYSCORE', key, from, to, 'WITHSCORES', 'LIMIT', over - 1, 1)
        -- what is in flight may complete at once: this is the earliest moment, never later than the true one
        wait = math.max(wait, math.min(tonumber(leaver[2]), early) + window - early)
      end
      want = math.min(want, units - used)
    else
      want = math.min(want, units)
    end
  end
  if wait > 0 then return { 'wait', exact(wait) } end

  if not known then
    redis.call('DEL', credential)  -- left by an older generation
    redis.call('ZADD', credential, '+inf', mark)
    redis.call('ZADD', vendor, '-1', member)
  end
  local names, score, past = {}, exact(late + hold), exact(early - reach)
  for k = 1, want do names[k] = ARGV[6] .. ':' .. k end
  for _, key in ipairs(KEYS) do
    redis.call('ZREMRANGEBYSCORE', key, '(0', past)
    each(key, 'ZADD', {}, names, score)
  end
  return { 'grant', want }
end

-- done: places. With a clock far off the stamp is a guess: then a place keeps the end of its hold if that is sooner.
local function done()
  local names, score = listed(ARGV[4]), exact(late)
  local flags = skewed and { 'XX', 'LT' } or { 'XX' }
  for _, key in ipairs(KEYS) do each(key, 'ZADD', flags, names, score) end
  return { 'ok' }
end

-- cancel: places for which no call was started.
local function cancel()
  local names = listed(ARGV[4])
  for _, key in ipairs(KEYS) do each(key, 'ZREM', {}, names) end
  return { 'ok' }
end

-- rebuild: generation, reach, credential ids (in the order of KEYS[2..]), then "n left units" with KEYS[1 + n];
-- left: until the call is over, negative if it is, counted from now by the ledger's own clock.
local function rebuild()
  if skewed then return { 'skewed', exact(ahead) } end
  for _, old in ipairs(redis.call('ZRANGEBYSCORE', vendor, '+inf', '+inf')) do
    if tonumber(old:match('^gen:(%d+)')) >= tonumber(ARGV[4]) then return { 'lost' } end
  end
  local mark = seal(ARGV[4])
  for _, key in ipairs(KEYS) do
    redis.call('DEL', key)
    redis.call('ZADD', key, '+inf', mark)
  end
  redis.call('ZADD', vendor, '-' .. ARGV[5], 'reach')
  for _, id in ipairs(listed(ARGV[6])) do redis.call('ZADD', vendor, '-1', 'c' .. id) end
  local row = 0
  for n, left, units in ARGV[7]:gmatch('(%d+) (-?%d+) (%d+)') do
    local names, score = {}, exact(late + left)
    row = row + 1
    for k = 1, tonumber(units) do names[k] = 'r' .. row .. ':' .. k end
    each(vendor, 'ZADD', {}, names, score)
    each(KEYS[1 + n], 'ZADD', {}, names, score)
  end
  return { 'ok' }
end

return ({ acquire = acquire, done = done, cancel = cancel, rebuild = rebuild })[verb]()
