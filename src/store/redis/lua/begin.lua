local again, room = ARGV[11] == '1', tonumber(ARGV[12])
enter(true)
local r = find()
if r and r.state == 'X' then
  -- Its begin was under way when it was given up.
  if r.token == TOKEN then return say('fenced') end
  r = nil
end
if r then
  if r.fingerprint ~= FINGERPRINT then return say('conflict') end
  local unknown = r.state == 'U'
  if r.state == 'C' then
    if r.token == TOKEN then return say('fresh', r.attempt) end
    if clock < r.till then return say('in_flight') end
    unknown = true
  end
  if not unknown then return say('completed', r.origin, r.state, r.outcome) end
  if not again then return say('unknown') end
  local attempt = string.format('%08x', math.min(num(r.attempt) + 1, 4294967295))
  put(own('C', attempt, clock + LEASE))
  return say('fresh', attempt)
end
if recovering then return say('recovering') end
sweep(4)
if redis.call('ZCARD', DUE) >= room then
  sweep(64)
  if redis.call('ZCARD', DUE) >= room then return say('full') end
end
put(own('C', '00000001', clock + LEASE))
return say('fresh', '00000001')
