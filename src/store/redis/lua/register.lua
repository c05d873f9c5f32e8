local key = KEYS[FIRST + 1]
local owner, name, residency, retention, rest, room = ARGV[4], ARGV[5], ARGV[6], ARGV[7], ARGV[8], tonumber(ARGV[9])
enter(true)
if not is_live(owner) then return say('no_lease') end
local r = slot(key)
if r then
  -- The caller's own, written by an attempt whose reply was lost.
  if not r.tomb and r.owner == owner and r.residency == residency and r.rest == rest then return say('recorded', r.fence) end
  return say('occupied', r.text)
end
sweep(4)
local function is_full() return redis.call('ZCARD', DUE) + redis.call('ZCARD', TOMBS) >= room end
if is_full() then
  sweep(64)
  -- A lapsed owner drops what is absent, so tombstones are only needed while recovering.
  if is_full() and not recovering then
    local oldest = redis.call('ZPOPMIN', TOMBS)[1]
    if oldest then redis.call('DEL', SESSION .. oldest) end
  end
  if is_full() then return say('full') end
end
local fence = inc .. '0000000000000001'
put(key, owner, fence, 'U', residency, retention, name, rest)
return say('recorded', fence)
