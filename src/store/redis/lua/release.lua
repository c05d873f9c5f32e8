enter()
local r = find()
-- The begin may be under way still.
if not r then
  put(own('X', '00000000', clock + LEASE))
elseif r.token == TOKEN and r.state == 'C' then
  r.state, r.till = 'X', clock + LEASE
  put(r)
end
return say('released')
