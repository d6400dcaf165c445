-- Good and bad answers of one vendor, and whether more work for it is taken (document 002).
-- KEYS[1]: hash good, bad; closed: no work before then; probe: one batch is out, the others wait until then (seconds).
-- trouble: what the last bad answer said, and trouble_at.
-- ARGV: verb, min_requests, min_ratio, ttl, retry_after (seconds), then good, bad, trouble for the verb note.
local verb, least, ratio = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local ttl, pause = tonumber(ARGV[4]), tonumber(ARGV[5])
local clock = redis.call('TIME')
local now = clock[1] + clock[2] / 1000000
local row = redis.call('HMGET', KEYS[1], 'good', 'bad', 'closed', 'probe', 'trouble', 'trouble_at')
local good, bad = tonumber(row[1] or 0), tonumber(row[2] or 0)
local closed, probe = tonumber(row[3] or 0), tonumber(row[4] or 0)

local function under(g, b)
  return g / (g + b) < ratio
end

local function set(field, seconds)
  redis.call('HSET', KEYS[1], field, string.format('%.6f', seconds))
end

local function keep()
  if redis.call('TTL', KEYS[1]) < 0 then redis.call('EXPIRE', KEYS[1], ttl) end
end

local function answer(word, seconds)
  return {word, good, bad, tostring(seconds), row[5] or '', row[6] or '0'}
end

if verb == 'note' then
  local g, b = tonumber(ARGV[6]), tonumber(ARGV[7])
  if closed > 0 and now >= closed then -- half-open: these answers decide
    if under(g, b) then
      set('closed', now + pause)
      redis.call('HDEL', KEYS[1], 'probe')
    else
      redis.call('DEL', KEYS[1])
    end
  end
  redis.call('HINCRBY', KEYS[1], 'good', g)
  redis.call('HINCRBY', KEYS[1], 'bad', b)
  if ARGV[8] and ARGV[8] ~= '' then
    redis.call('HSET', KEYS[1], 'trouble', ARGV[8])
    set('trouble_at', now)
  end
  keep()
  return answer('noted', 0)
end

if good + bad < least or good + bad == 0 or not under(good, bad) then
  if verb == 'admit' and closed > 0 then redis.call('HDEL', KEYS[1], 'closed', 'probe') end
  return answer('open', 0)
end
if closed == 0 then
  if verb == 'admit' then set('closed', now + pause) end
  return answer('closed', pause)
end
if now < closed then return answer('closed', closed - now) end
if now < probe then return answer('closed', probe - now) end
if verb == 'admit' then
  set('probe', now + pause)
  return answer('probe', 0)
end
return answer('half-open', 0)
