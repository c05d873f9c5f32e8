local key = KEYS[FIRST + 1]
local function owned(record, owner)
  return say('owned', record, redis.call('HGET', LEASES, owner), text(left_of(owner)), text(clock),
    redis.call('GET', GENERATION) or '')
end

local record = redis.call('GET', key)
local m = redis.call('HMGET', MARKER, 'raw', 'clock', 'step')
if record and m[1] and string.sub(record, 1, 1) == '1' then
  clock = ticked(wall(), tonumber(m[1]), tonumber(m[2]), tonumber(m[3]))
  if num(string.sub(record, 117, 132)) > clock then
    if string.sub(record, 2, 2) == 'T' then return say('terminated', record) end
    local owner = string.sub(record, 3, 34)
    if is_live(owner) then return owned(record, owner) end
  end
end
-- Whatever is said now is a proof, so the memory has to be the one that was written to.
enter()
local r = slot(key)
if r and r.tomb then return say('terminated', r.text) end
if r and is_live(r.owner) then return owned(r.text, r.owner) end
if recovering then return say('recovering') end
if r then return say('orphaned', r.text) end
return say('absent')
