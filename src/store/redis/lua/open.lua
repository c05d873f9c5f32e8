local header, fence, id, number = ARGV[9], ARGV[10], ARGV[11], ARGV[12]
session()
if x.id and x.id ~= id then error('CORRUPT the log of another session') end
if is_below(fence) then return say('fenced') end
local s = find()
if s then return say(redis.call('HGET', s.m, 'header') == header and 'opened' or 'corrupt') end

-- A stream that another one may have the place of: the oldest that is over and held for nobody, or else the oldest that
-- has been silent for long.
local function dispensable()
  local silent
  for _, ref in ipairs(redis.call('ZRANGE', S, 0, -1)) do
    local other = stream(ref)
    if not other then
      redis.call('ZREM', S, ref)
      return true
    end
    if is_over(other) and not is_held(other) then return other end
    if not silent and is_idle(other, 4 * AGE) then silent = other end
  end
  return silent
end
while redis.call('ZCARD', S) >= STREAMS do
  local other = dispensable()
  if not other then return say('full') end
  if other ~= true then forget(other) end
end

local m = BASE .. 'm:' .. REF
redis.call('HSET', m, 'header', header, 'fence', fence, 'head', '0', 'from', '1', 'keep', '1', 'reader', '0',
  'touched', text(now), 'kept', text(now), 'looked', text(now))
redis.call('ZADD', S, number, REF)
redis.call('HSET', X, 'schema', '1', 'id', id)
store_session()
linger(X, S, m)
return say('opened')
