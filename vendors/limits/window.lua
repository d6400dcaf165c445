-- The sliding windows of one vendor, in two sorted sets: KEYS[1] counts the whole vendor, KEYS[2..] one credential each.
-- A receiver with limits has two sets of its own, of the same kind. With acquire, done and cancel, KEYS[3..] are those of
-- receivers, in pairs; the places there have the names that they have with the vendor.
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
-- Beside them stands the trail, in one more set: every grant of this run of the server, with its units, what it was for
-- and when it was given, and what was cancelled of it; the last TRAIL of them. A store that has lost its last seconds
-- learns from it what it has lost. It outlives a rebuild, but not the run. So does the set of those under which a call
-- has ended: what they were for was committed.
--
-- A letter that needs several places would never find them free beside others that take each place as it comes free. So
-- who was refused several is noted among the turns. Once those who came later, or need no turn, have got as many places
-- past him, what comes free is kept for those whose turn it is, in the order in which they came. One who does not come
-- back in time loses his turn.
--
-- ARGV: verb, server clock ('' = the server's own), caller's clock, then the arguments of the verb.
local vendor, verb, caller = KEYS[1], ARGV[1], tonumber(ARGV[3])
local SKEW, CHUNK = 2000000, 1000  -- CHUNK keeps unpack below Lua's limit of some 8,000
local trail, TRAIL = vendor:gsub('window$', 'trail'), 20000
local used = vendor:gsub('window$', 'used')
local turns, LATE = vendor:gsub('window$', 'turns'), 5000000  -- how late one may come back, and a quarter of his wait more
local TURNS = 100  -- at most: all are read each time
local SOON, LATER = 50000, 1000000  -- after which one looks again for whom places were free that are kept
local AT_A_TIME = 11000  -- a window up to this long, 10 ms and a margin, counts calls that are under way
local TOMORROW = 60000000  -- after which one looks again whose letter is dearer than a limit: a warm-up may have grown

local function exact(number) return string.format('%.0f', number) end  -- '..' would round to 14 digits

local clock = tonumber(ARGV[2])
if not clock then
  local time = redis.call('TIME')
  clock = time[1] * 1000000 + time[2]
end
local ahead = clock - caller
local skewed = math.abs(ahead) > SKEW
local early, late = math.min(clock, caller), math.max(clock, caller)

local function run()
  local info = redis.pcall('INFO', 'server')  -- another run may have lost the last grants: a restart, a late replica
  return type(info) == 'string' and info:match('run_id:(%x+)') or ''
end

local function seal(generation) return 'gen:' .. generation .. ':' .. run() end

local function follow(entry)
  redis.call('ZADD', trail, exact(late), entry)
  redis.call('ZREMRANGEBYRANK', trail, 0, -TRAIL - 1)
end

local function each(key, command, flags, names, score, from, to)
  for first = from or 1, to or #names, CHUNK do
    local args = { unpack(flags) }
    for i = first, math.min(first + CHUNK - 1, to or #names) do
      if score then args[#args + 1] = score end
      args[#args + 1] = names[i]
    end
    redis.call(command, key, unpack(args))
  end
end

local function listed(text)
  local names = {}
  for name in text:gmatch('%S+') do names[#names + 1] = name end
  return names
end

-- The grants of these places, each once.
local function grants_of(names)
  local found, seen = {}, {}
  for _, name in ipairs(names) do
    local grant = name:match('^(.*):')
    if grant and not seen[grant] then
      seen[grant] = true
      found[#found + 1] = grant
    end
  end
  return found
end

local function occupants(window)
  return '(' .. exact(math.max(early - window, 0)), '(+inf'
end

-- When so many of the places end that have not ended yet: at once, as calls in flight may. But nobody hands back those that
-- a rebuild has written, under names of its own: they end when their calls can have ended at the latest.
local function kept_open(key, places)
  local held = redis.call('ZSCORE', key, 'held')
  if not held or -tonumber(held) <= early then return early end
  local rows, ends, others = redis.call('ZRANGEBYSCORE', key, '(' .. exact(early), '(+inf', 'WITHSCORES'), {}, 0
  for i = 1, #rows, 2 do
    if rows[i]:match('^r%d+:') then ends[#ends + 1] = tonumber(rows[i + 1]) else others = others + 1 end
  end
  return ends[places - others] or early
end

-- How many places of a window are taken, and how long it is until there is room for so many more.
local function used_and_wait(key, units, window, more)
  local from, to = occupants(window)
  local used = redis.call('ZCOUNT', key, from, to)
  local over = used + more - units
  if over <= 0 then return used, 0 end
  local leaver = redis.call('ZRANGEBYSCORE', key, from, to, 'WITHSCORES', 'LIMIT', over - 1, 1)
  local ends = tonumber(leaver[2])
  -- what is in flight may complete at once: this is the earliest moment, never later than the true one
  if ends > early then ends = kept_open(key, over - redis.call('ZCOUNT', key, from, exact(early))) end
  return used, ends + window - early
end

-- The smallest of the limits from here to there, in the arguments.
local function smallest(first, last)
  local least = math.huge
  for i = first, last, 2 do least = math.min(least, tonumber(ARGV[i])) end
  return least
end

-- The turn of this waiter, if he has one, and those of all others. Whoever needs more than a limit allows (it was lowered
-- since) cannot come back.
local function waiting(waiter, asking, of_vendor, of_credential)
  local mine, others, rows = nil, {}, redis.call('HGETALL', turns)
  for i = 1, #rows, 2 do
    local since, need, passed, till, credential, narrow, sponsor =
      rows[i + 1]:match('(%d+) (%d+) (%d+) (%d+) (%S+) (%d) ?(%S*)')
    local turn = {
      who = rows[i], since = tonumber(since), need = tonumber(need), passed = tonumber(passed), till = tonumber(till),
      credential = credential, narrow = narrow == '1', sponsor = sponsor,
    }
    if turn.till < late or turn.need > (credential == asking and of_credential or of_vendor) then
      redis.call('HDEL', turns, turn.who)
    elseif turn.who == waiter then
      mine = turn
    else
      others[#others + 1] = turn
    end
  end
  return mine, others
end

local function note(turn)
  local narrow = turn.narrow and 1 or 0
  local numbers = { exact(turn.since), turn.need, turn.passed, exact(turn.till), turn.credential, narrow, turn.sponsor }
  redis.call('HSET', turns, turn.who, table.concat(numbers, ' '))
end

-- Who waits for his credential's limit, or for another one's turn there, keeps nothing from other credentials: he could
-- not use it. Nor does he keep anything from other sponsors: between them, shares decide (shares.lua).
local function concerns(turn, credential, sponsor)
  if turn.sponsor ~= sponsor and turn.sponsor ~= '' and sponsor ~= '' then return false end
  return turn.credential == credential or not turn.narrow
end

local function before(turn, other)
  return turn.since < other.since or turn.since == other.since and turn.who < other.who
end

-- What is kept of the vendor's windows, and of the credential's, for those who come before this one: how many places;
-- first: whose turn it is.
local function kept(mine, others, credential, sponsor)
  local of_vendor, of_credential, due = { places = 0 }, { places = 0 }, mine and mine.passed >= mine.need
  local function keep(of, turn)
    of.places = of.places + turn.need
    if not of.first or before(turn, of.first) then of.first = turn end
  end
  for _, turn in ipairs(others) do
    if turn.passed >= turn.need and (not due or before(turn, mine)) and concerns(turn, credential, sponsor) then
      keep(of_vendor, turn)
      if turn.credential == credential then keep(of_credential, turn) end
    end
  end
  return of_vendor, of_credential
end

-- Until one looks again for whom places are free, or will be, that are kept: when the first one can have his, who may not
-- come; from then on soon.
local function kept_for(key, units, window, least, keep)
  local _, first = used_and_wait(key, units, window, keep.first.need)
  if first > 0 then return first end
  local _, both = used_and_wait(key, units, window, math.min(least + keep.places, units))
  return math.min(math.max(both, SOON), LATER)
end

-- The receivers: for each its seal's generation, number of limits of the vendor, of all, (units, window)... `used`: so many
-- places are taken. nil if one of the windows is lost.
local function receivers_from(at)
  local found = {}
  for n = 1, (#KEYS - 2) / 2 do
    local whole, part, mark = KEYS[1 + 2 * n], KEYS[2 + 2 * n], seal(ARGV[at])
    if not redis.call('ZSCORE', whole, mark) then return nil end
    local known = redis.call('ZSCORE', whole, 'c' .. ARGV[5])
    if known and not redis.call('ZSCORE', part, mark) then return nil end
    local reach, limits = -tonumber(redis.call('ZSCORE', whole, 'reach')), {}
    for i = 1, tonumber(ARGV[at + 2]) do
      local key = i <= tonumber(ARGV[at + 1]) and whole or part
      local units, window = tonumber(ARGV[at + 1 + 2 * i]), tonumber(ARGV[at + 2 + 2 * i])
      if window > reach then return nil end
      local used = 0
      if known or key == whole then used = used_and_wait(key, units, window, 0) end
      limits[i] = { key = key, units = units, window = window, used = used }
    end
    found[n] = { whole = whole, part = part, mark = mark, known = known, reach = reach, limits = limits }
    at = at + 3 + 2 * tonumber(ARGV[at + 2])
  end
  return found
end

-- How many places a letter needs in a window: where calls at a time are counted, one that is dearer is called alone.
local function need_in(limit, cost)
  return limit.window <= AT_A_TIME and math.min(cost, limit.units) or cost
end

-- For how many of so many letters of this cost a receiver has room.
local function room_for(receiver, cost, count)
  for _, limit in ipairs(receiver.limits) do
    local need, free = need_in(limit, cost), limit.units - limit.used - (receiver.taken or 0)
    if need < cost then count = math.min(count, need > 0 and free >= need and 1 or 0)
    else count = math.min(count, math.floor(free / cost)) end
  end
  return math.max(0, count)
end

-- Which letters, in their order, fit into `most` places and into the room of their receivers. Runs of letters: receiver (0:
-- one without limits), cost, number. Behind one for which its receiver has no room, others to that receiver wait; behind
-- one for which the vendor has none, all. Answers how many places they take, the cost of the first that takes any, by
-- receiver the spans of places, and the cost of the first that waits for it.
local function fitting(letters, receivers, most)
  local total, first, spans, needs = 0, nil, {}, {}
  for receiver, cost, count in letters:gmatch('(%d+) (%d+) (%d+)') do
    receiver, cost, count = tonumber(receiver), tonumber(cost), tonumber(count)
    local mine = receivers[receiver]
    if not (mine and needs[receiver]) then
      local by_vendor, by_receiver = count, count
      if cost > 0 then by_vendor = math.min(count, math.floor((most - total) / cost)) end
      if cost > 0 and mine then by_receiver = room_for(mine, cost, count) end
      local number = math.min(by_vendor, by_receiver)
      if number * cost > 0 then
        first = first or cost
        if mine then
          mine.taken, spans[receiver] = (mine.taken or 0) + number * cost, spans[receiver] or {}
          table.insert(spans[receiver], { total + 1, total + number * cost })
        end
        total = total + number * cost
      end
      if number < count then
        if number < by_receiver then break end
        needs[receiver] = cost
      end
    end
  end
  for _, mine in ipairs(receivers) do mine.taken = nil end
  return total, first, spans, needs
end

-- After how long a receiver has room for so many more places.
local function room_after(receiver, need)
  local wait = 0
  for _, limit in ipairs(receiver.limits) do
    local more = need_in(limit, need)
    if limit.units < math.max(more, 1) then return TOMORROW end
    if receiver.known or limit.key == receiver.whole then
      local _, longer = used_and_wait(limit.key, limit.units, limit.window, more)
      wait = math.max(wait, longer)
    end
  end
  return wait
end

-- Appends for each receiver how many places it gives, and after how long it has room for more ('0': for all there was).
local function with_receivers(reply, receivers, spans, needs)
  for n, receiver in ipairs(receivers) do
    local units = 0
    for _, span in ipairs(spans[n] or {}) do units = units + span[2] - span[1] + 1 end
    reply[#reply + 1] = units
    reply[#reply + 1] = needs[n] and exact(math.max(1, room_after(receiver, needs[n]))) or '0'
  end
  return reply
end

-- acquire: seal's generation, credential id, grant id, want, least, hold, number of vendor limits, what for,
-- waiter ('' = he needs no turn), asker and its wants by sponsor ('' = of nobody, see shares.lua), number of limits,
-- (units, window)..., then, if receivers have limits, the letters as `fitting` takes them (want and least follow from
-- them) and the receivers. Answers how many were granted; if that is less, after how long there can be `least` more; how
-- many of them each of its sponsors gets; 'full' if no receiver has room for a letter. All or nothing is written.
local FIRST = 16  -- of the limits
local function acquire()
  local mark, member, credential = seal(ARGV[4]), 'c' .. ARGV[5], KEYS[2]
  local want, least, hold, split = tonumber(ARGV[7]), tonumber(ARGV[8]), tonumber(ARGV[9]), tonumber(ARGV[10])
  if skewed then return { 'skewed', exact(ahead) } end
  if not redis.call('ZSCORE', vendor, mark) then return { 'lost' } end
  local known, reach = redis.call('ZSCORE', vendor, member), -tonumber(redis.call('ZSCORE', vendor, 'reach'))
  if known and not redis.call('ZSCORE', credential, mark) then return { 'lost' } end
  local last = FIRST - 1 + 2 * tonumber(ARGV[FIRST - 1])
  local letters, receivers, spans, needs = ARGV[last + 1], {}, {}, {}
  if letters then
    receivers = receivers_from(last + 2)
    if not receivers then return { 'lost' } end
    want, least, spans, needs = fitting(letters, receivers, math.huge)
    if want == 0 then return with_receivers({ 'full', 0, '0', '' }, receivers, spans, needs) end
  end

  local sharing = last >= FIRST and shares_of(ARGV[13], ARGV[14], ARGV[5], late, want) or nil
  local sponsor = sharing and sharing.own[1].sponsor or ''
  local limit_of_vendor = smallest(FIRST, FIRST - 1 + 2 * split)
  local mine, others = waiting(ARGV[12], credential, limit_of_vendor, smallest(FIRST, last))
  local of_vendor, of_credential = kept(mine, others, credential, sponsor)
  local free, longest = { [vendor] = math.huge, [credential] = math.huge }, { [vendor] = 0, [credential] = 0 }
  local asked, wait, narrow = want, 0, false
  for i = FIRST, last, 2 do
    local key = i < FIRST + 2 * split and vendor or credential
    local units, window, keep = tonumber(ARGV[i]), tonumber(ARGV[i + 1]), key == vendor and of_vendor or of_credential
    if window > reach then return { 'lost' } end  -- older places are gone: only the ledger knows them
    local used, longer = 0, 0
    if known or key == vendor then used, longer = used_and_wait(key, units, window, least) end
    if keep.places > 0 and used + least + keep.places > units then
      longer = math.max(longer, kept_for(key, units, window, least, keep))
    end
    narrow = narrow or longer > 0 and key ~= vendor
    wait, longest[key] = math.max(wait, longer), math.max(longest[key], longer)
    free[key] = math.min(free[key], units - used - keep.places)
    want = math.min(want, units - used - keep.places)
  end
  -- After how long more places are free than those kept for other sponsors, if they come in time.
  local function more_after()
    for i = FIRST, last, 2 do
      local key, units = i < FIRST + 2 * split and vendor or credential, tonumber(ARGV[i])
      local needs = math.min(units, least + (sharing and sharing.kept[key] or 0))
      if known or key == vendor then
        local _, longer = used_and_wait(key, units, tonumber(ARGV[i + 1]), needs)
        longest[key] = math.max(longest[key], longer)
      end
    end
    local longer = math.max(longest[vendor], longest[credential])
    return sharing and until_kept(sharing, longer) or longer
  end
  if sharing and wait == 0 then
    want = divide_free(sharing, vendor, credential, free, want, least)
    if want == 0 then wait = math.max(more_after(), HELD_LEAST) end
  end
  if wait > 0 then
    if sharing then note_shares(sharing, wait, longest[credential] > longest[vendor], false, reach) end
    if ARGV[12] ~= '' and (mine or least > 1 and #others < TURNS) then
      local till, since, passed = late + wait * 5 / 4 + LATE, mine and mine.since or late, mine and mine.passed or 0
      note({
        who = ARGV[12], since = since, need = least, passed = passed, till = till, credential = credential,
        narrow = narrow, sponsor = sponsor,
      })
      for _, turn in ipairs(others) do till = math.max(till, turn.till) end
      redis.call('PEXPIRE', turns, exact((till - late) / 1000 + 1))
    end
    return { 'wait', exact(wait) }
  end
  if letters then want, least, spans, needs = fitting(letters, receivers, want) end
  if letters and sharing then sharing.parts[1] = want end

  if mine then redis.call('HDEL', turns, mine.who) end
  for _, turn in ipairs(others) do
    if turn.passed < turn.need and concerns(turn, credential, sponsor) and not (mine and before(mine, turn)) then
      turn.passed = turn.passed + want
      note(turn)
    end
  end
  if not known then
    redis.call('DEL', credential)  -- left by an older generation
    redis.call('ZADD', credential, '+inf', mark)
    redis.call('ZADD', vendor, '-1', member)
    known = '-1'
  end
  local names, score, past = {}, exact(late + hold), exact(early - reach)
  for k = 1, want do names[k] = ARGV[6] .. ':' .. k end
  for _, key in ipairs({ vendor, credential }) do
    redis.call('ZREMRANGEBYSCORE', key, '(0', past)
    each(key, 'ZADD', {}, names, score)
  end
  for n, receiver in ipairs(receivers) do
    if spans[n] and not receiver.known then
      redis.call('DEL', receiver.part)
      redis.call('ZADD', receiver.part, '+inf', receiver.mark)
      redis.call('ZADD', receiver.whole, '-1', member)
      receiver.known = '-1'
    end
    for _, key in ipairs(spans[n] and { receiver.whole, receiver.part } or {}) do
      redis.call('ZREMRANGEBYSCORE', key, '(0', exact(early - receiver.reach))
      for _, span in ipairs(spans[n]) do each(key, 'ZADD', {}, names, score, span[1], span[2]) end
    end
  end
  follow(ARGV[6] .. ' ' .. want .. ' ' .. ARGV[11])
  if want < asked then wait = more_after() end  -- who wants more need not ask before it can be granted
  if sharing then note_shares(sharing, wait, longest[credential] > longest[vendor], true, reach) end
  local parts = sharing and table.concat(sharing.parts, ' ') or ''
  return with_receivers({ 'grant', want, exact(wait), parts }, receivers, spans, needs)
end

-- With a clock far off the stamp is a guess: then a place keeps the end of its hold if that is sooner.
local function end_now(names)
  local flags = skewed and { 'XX', 'LT' } or { 'XX' }
  for i, key in ipairs(KEYS) do each(key, 'ZADD', flags, names(i), exact(late)) end
end

-- The places in each of the keys. Those in the sets of a receiver are named apart, or else there may be any.
local function places_in(names)
  return function(i) return i > 2 and ARGV[5 + math.ceil(i / 2 - 1)] and listed(ARGV[5 + math.ceil(i / 2 - 1)]) or names end
end

-- done: places, nothing, places of each receiver.
local function done()
  local names, score = listed(ARGV[4]), exact(late)
  end_now(places_in(names))
  each(used, 'ZADD', {}, grants_of(names), score)
  redis.call('ZREMRANGEBYRANK', used, 0, -TRAIL - 1)
  return { 'ok' }
end

-- cancel: places for which no call was started, whether they count as calls that end now: the ledger may hold them. Then
-- places of each receiver.
local function cancel()
  local names = listed(ARGV[4])
  if ARGV[5] == '1' then
    end_now(places_in(names))
  else
    for i, key in ipairs(KEYS) do each(key, 'ZREM', {}, places_in(names)(i)) end
  end
  local units = {}
  for _, name in ipairs(names) do
    local grant = name:match('^(.*):')
    units[grant] = (units[grant] or 0) + 1
  end
  for grant, count in pairs(units) do follow(grant .. ' -' .. count .. ' ' .. names[1]) end
  return { 'ok' }
end

-- granted: the generation that the rows know ('' = whatever is there will do), since when. The trail with its times, in a table of its own: it is too long
-- for unpack; first 0 where nothing of this run is missing in it. Then the grants under which a call has ended, and those
-- under which one may be under way. Whoever claims under a generation was granted its places after the seal of that
-- generation was made.
local function granted()
  if ARGV[4] ~= '' and not redis.call('ZSCORE', vendor, seal(ARGV[4])) then return { 'lost' } end
  local full, since = redis.call('ZCARD', trail) >= TRAIL, ARGV[5]
  local in_flight = redis.call('ZRANGEBYSCORE', vendor, '(' .. exact(late), '(+inf')
  return {
    'trail', full and 1 or 0, redis.call('ZRANGEBYSCORE', trail, since, '+inf', 'WITHSCORES'),
    redis.call('ZRANGEBYSCORE', used, since, '+inf'), grants_of(in_flight),
  }
end

-- rebuild: generation (of a receiver: its version after a dot), reach, credential ids (in the order of KEYS[2..]), then "n left units" with KEYS[1 + n];
-- left: until the call is over, negative if it is, counted from now by the ledger's own clock.
local function rebuild()
  if skewed then return { 'skewed', exact(ahead) } end
  local mark, ours = seal(ARGV[4]), false
  for _, old in ipairs(redis.call('ZRANGEBYSCORE', vendor, '+inf', '+inf')) do
    if tonumber(old:match('^gen:(%d+)')) >= tonumber(ARGV[4]:match('^%d+')) then return { 'lost' } end
    ours = ours or old:match(':(%x*)$') == mark:match(':(%x*)$')
  end
  if not ours then redis.call('DEL', trail, used) end
  for _, key in ipairs(KEYS) do
    redis.call('DEL', key)
    redis.call('ZADD', key, '+inf', mark)
  end
  redis.call('ZADD', vendor, '-' .. ARGV[5], 'reach')
  for _, id in ipairs(listed(ARGV[6])) do redis.call('ZADD', vendor, '-1', 'c' .. id) end
  local row, held = 0, {}
  for n, left, units in ARGV[7]:gmatch('(%d+) (-?%d+) (%d+)') do
    local names, score = {}, exact(late + left)
    for _, key in ipairs({ vendor, KEYS[1 + n] }) do held[key] = math.max(held[key] or 0, late + left) end
    row = row + 1
    for k = 1, tonumber(units) do names[k] = 'r' .. row .. ':' .. k end
    each(vendor, 'ZADD', {}, names, score)
    each(KEYS[1 + n], 'ZADD', {}, names, score)
  end
  for key, till in pairs(held) do redis.call('ZADD', key, '-' .. exact(till), 'held') end
  return { 'ok' }
end

return ({ acquire = acquire, done = done, cancel = cancel, granted = granted, rebuild = rebuild })[verb]()
