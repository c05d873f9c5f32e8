enter()
local r = find()
if not r then
  if not recovering then return say('absent') end
  -- Forgotten is not given back: it is running, and this is its word.
  put(own('C', ATTEMPT, clock + LEASE))
  return say('yes')
end
if r.token ~= TOKEN or r.state ~= 'C' then return say('superseded') end
r.till = clock + LEASE
put(r)
return say('yes')
