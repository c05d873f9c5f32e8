local key = KEYS[FIRST + 1]
local seen, kept, rest = ARGV[4], tonumber(ARGV[5]), ARGV[6]
enter()
local r = slot(key)
-- Buried by an attempt whose reply was lost, or by somebody else: the 404 is true.
if r and r.tomb then return say('buried') end
if r and (r.fence ~= seen or is_live(r.owner)) then return say('lost') end
if recovering then return say('recovering') end
if not r then return say('lost') end
entomb(key, kept, rest)
return say('buried')
