local key = KEYS[FIRST + 1]
local fence, kept, rest = ARGV[4], tonumber(ARGV[5]), ARGV[6]
enter()
local r = slot(key)
if r and r.tomb then return say('ended') end
if fence ~= '' then
  -- What stands here may be an old grant's; a higher one that was forgotten has yet to be claimed.
  if recovering then return say('recovering') end
  if not r then return say('absent') end
  if r.fence ~= fence then return say('fenced') end
elseif not r and not recovering then
  return say('absent')
end
-- A client's DELETE of a session that was forgotten must stand when its owner claims it.
entomb(key, kept, rest)
return say('ended')
