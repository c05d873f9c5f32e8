local keep = tonumber(ARGV[9])
session()
local s = find()
if not s or is_over(s) then return say('fenced') end
s.keep, s.reader, s.touched = keep, false, now
store(s)

-- What of the batch is above the head. The rest is here already, or a gap for ever.
local news, events, bytes = {}, 0, 0
for at = 10, #ARGV, 5 do
  local first, last, size = tonumber(ARGV[at]), tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2])
  if last > s.head then
    local blob = ARGV[at + 3]
    if first <= s.head then
      size = 0
      for n = s.head + 1 - first, last - first do size = size + struct.unpack('<I4', blob, 13 + 4 * n) end
      first = s.head + 1
    end
    news[#news + 1] = { first = first, last = last, bytes = size, at = now, about = ARGV[at + 4], blob = blob }
    events, bytes = events + last - first + 1, bytes + size
  end
end
expire(s)

-- Room for them: the oldest go, whatever their stream, until there is. What never fits costs nobody anything.
local held = 0
local function make_room()
  if events > EVENTS or bytes > BYTES then return false end
  while x.events + events > EVENTS or x.bytes + bytes > BYTES do
    local member = redis.call('ZRANGE', O, held, held)[1]
    if not member then return false end
    local ref, first, last, size = string.match(member, '^(%S+) (%d+) (%d+) (%d+)$')
    local other = stream(ref)
    local l = { first = tonumber(first), last = tonumber(last), bytes = tonumber(size) }
    if not other then
      uncount(member)
    elseif is_free(other, l) then
      take(other, l)
    else
      held = held + 1
    end
  end
  return true
end
-- What is old goes too, now and then, whatever its stream.
local function tidy()
  if now - x.tidied < AGE / 64 then return end
  x.tidied = now
  for _, member in ipairs(redis.call('ZRANGE', O, 0, 255)) do
    local ref = string.match(member, '^%S+')
    local other = stream(ref)
    if not other then uncount(member) elseif other ~= s then expire(other) end
  end
end

local fits = #news == 0 or make_room()
if fits then
  local empty = s.from > s.head
  for _, l in ipairs(news) do
    miss(s, l.first - 1)
    s.head = l.last
    x.order, x.events, x.bytes = x.order + 1, x.events + l.last - l.first + 1, x.bytes + l.bytes
    local first = text(l.first)
    redis.call('ZADD', s.i, first, first .. ' ' .. text(l.last) .. ' ' .. text(l.bytes) .. ' ' .. text(now) .. ' ' .. l.about)
    redis.call('HSET', s.d, first, l.blob)
    redis.call('ZADD', O, text(x.order), counted(s, l))
  end
  tidy()
  store(s)
  if empty and #news > 0 then linger(O, s.i, s.d) end
end
store_session()
refresh(s)
return say(fits and 'appended' or 'full')
