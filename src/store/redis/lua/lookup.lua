local key = KEYS[FIRST + 1]
local text = redis.call('GET', key)
local m = redis.call('HMGET', MARKER, 'raw', 'clock', 'step')
if text and m[1] and string.sub(text, 1, 1) == '1' then
  local now = ticked(wall(), tonumber(m[1]), tonumber(m[2]), tonumber(m[3]))
  if num(string.sub(text, 117, 132)) > now then
    if string.sub(text, 2, 2) == 'T' then return say('terminated', text) end
    local owner = string.sub(text, 3, 34)
    local till = redis.call('ZSCORE', UNTIL, owner)
    if till and tonumber(till) > now then return say('owned', text, redis.call('HGET', LEASES, owner)) end
  end
end
-- Whatever is said now is a proof, so the memory has to be the one that was written to.
enter()
local r = slot(key)
if r and r.tomb then return say('terminated', r.text) end
if r and is_live(r.owner) then return say('owned', r.text, redis.call('HGET', LEASES, r.owner)) end
if recovering then return say('recovering') end
if r then return say('orphaned', r.text) end
return say('absent')
