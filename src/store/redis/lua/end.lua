local last, ending = tonumber(ARGV[9]), ARGV[10]
local said = text(last) .. ' ' .. ending
session()
steady()
local s = find()
if not s or is_below(s.fence) then return say('fenced') end
if s.ended then
  -- An attempt whose reply was lost has ended it.
  if s.ended ~= said then return say('fenced') end
  redis.call('HSET', s.m, 'touched', text(now))
  return say('ended')
end
miss(s, last)
-- The producer holds nothing any more; whoever reads for itself still does.
if not s.reader then s.keep = s.head + 1 end
s.touched = now
redis.call('HSET', s.m, 'ended', said)
store(s)
refresh(s)
return say('ended')
