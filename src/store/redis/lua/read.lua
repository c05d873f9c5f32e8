local after, events, bytes = tonumber(ARGV[9]), tonumber(ARGV[10]), tonumber(ARGV[11])
session()
steady()
local s = find()
if not s then return say('none') end
local was = x.events
expire(s)
if x.events ~= was then store_session() end
s.touched = now
-- Nobody has read what was never said, and what others have yet to read is not theirs to let go.
if after <= s.head then s.keep, s.reader = after + 1, true end
store(s)
refresh(s)

-- Everything that was recorded at once with a number after the reader's.
local lines = redis.call('ZREVRANGEBYSCORE', s.i, text(after), '-inf', 'LIMIT', 0, 1)
if lines[1] and line(lines[1]).last <= after then lines = {} end
for _, member in ipairs(redis.call('ZRANGEBYSCORE', s.i, '(' .. text(after), '+inf')) do lines[#lines + 1] = member end

local about, firsts, next, full = {}, {}, after + 1, false
for _, member in ipairs(lines) do
  local l = line(member)
  if l.about ~= '' then
    about[#about + 1] = text(l.first)
    about[#about + 1] = l.about
  end
  -- The first page of them, without a gap.
  full = full or l.first > next or events <= 0 or bytes <= 0 or #firsts >= 1000
  if not full or (#firsts == 0 and l.first <= next) then
    firsts[#firsts + 1] = text(l.first)
    events, bytes, next = events - (l.last + 1 - next), bytes - l.bytes, l.last + 1
  end
end
local blobs = {}
if #firsts > 0 then blobs = redis.call('HMGET', s.d, unpack(firsts)) end
for _, blob in ipairs(blobs) do
  if not blob then error('CORRUPT what was recorded is not there') end
end
return say('stream', redis.call('HGET', s.m, 'header'), text(s.head), s.ended or '', gap(s, after), about, firsts, blobs)
