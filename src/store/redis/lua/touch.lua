local owner = ARGV[4]
enter()
local reply = say('touched')
for at = FIRST + 1, #KEYS do
  local key = KEYS[at]
  local head = redis.call('GETRANGE', key, 0, 151)
  local r = head ~= '' and read(head) or nil
  if r and r.over <= hex(clock) then r = nil end
  if r and not r.tomb and r.owner == owner then
    if r.retention ~= NEVER then
      local till = over(r.retention)
      redis.call('SETRANGE', key, 116, till)
      redis.call('ZADD', DUE, num(till), string.sub(key, #SESSION + 1))
    end
  elseif r or not recovering then
    -- Forgotten is not gone: the owner's claim brings it back.
    reply[#reply + 1] = at - FIRST
  end
end
return reply
