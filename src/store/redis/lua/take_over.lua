local key = KEYS[FIRST + 1]
local seen, same, by, name = ARGV[4], ARGV[5], ARGV[6], ARGV[7]
enter()
if not is_live(by) then return say('no_lease') end
local r = slot(key)
if not r or r.tomb then return say(recovering and 'recovering' or 'lost') end
if r.fence ~= seen or r.residency ~= 'E' or (r.owner ~= by and is_live(r.owner)) then return say('lost') end
if recovering then return say('recovering') end
local fence = above(seen, same)
put(key, by, fence, 'U', r.residency, r.retention, name, r.rest)
return say('taken', fence)
