local state, outcome, most = ARGV[11], ARGV[12], tonumber(ARGV[13])
enter()
local r = find()
-- It ran, whether or not this ledger still knows that it was begun.
if not r then r = own('C', ATTEMPT, clock) end
if r.token ~= TOKEN or r.state == 'X' then return say('superseded') end
-- Acknowledged again.
if r.state ~= 'C' and r.state ~= 'U' then return say('yes') end
r.state, r.till, r.outcome = state, clock + OUTCOMES, outcome
put(r)
if #outcome > 0 then
  redis.call('ZADD', KEPT, text(clock), string.sub(RECORD, #BASE + 1))
  local bytes = redis.call('HINCRBY', MARKER, 'bytes', #outcome)
  -- The oldest outcomes go; that they ran stays known.
  while bytes > most do
    local hash = redis.call('ZPOPMIN', KEPT)[1]
    if not hash then break end
    local old = redis.call('GET', BASE .. hash)
    if old then
      redis.call('SET', BASE .. hash, '1L' .. string.sub(old, 3, 250))
      bytes = redis.call('HINCRBY', MARKER, 'bytes', 250 - #old)
    end
  end
end
return say('yes')
