-- What the verbs of the logs share. A session has a head (its id, what its events come to, its seal), its streams in the
-- order in which they were opened, and all that was recorded in the order in which it was. A stream has a head, an index
-- of what was recorded at once, and the events themselves. See `script.rs`.
local X, S, O = KEYS[1], KEYS[2], KEYS[3]
local BASE = string.sub(X, 1, -2)
local AGE, SILENCE = tonumber(ARGV[3]), tonumber(ARGV[4])
local EVENTS, BYTES, STREAMS = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
local REF = ARGV[8]

local function say(...) return { ARGV[1], ... } end
local function text(n) return string.format('%.0f', n) end

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000) + tonumber(ARGV[2])

local x
local function session()
  local h = redis.call('HMGET', X, 'schema', 'id', 'events', 'bytes', 'order', 'sealed', 'tidied')
  if h[1] and h[1] ~= '1' then error('CORRUPT the log is of another schema') end
  x = {
    id = h[2], events = tonumber(h[3] or 0), bytes = tonumber(h[4] or 0), order = tonumber(h[5] or 0), sealed = h[6],
    tidied = tonumber(h[7] or 0),
  }
end

-- Before the first write of a verb that must not fail for want of memory; a replica refuses it.
local function steady() redis.call('DEL', X .. ':nothing') end

local loaded = {}
local function stream(ref)
  local s = loaded[ref]
  if s ~= nil then return s end
  local m = BASE .. 'm:' .. ref
  local h = redis.call('HMGET', m, 'fence', 'head', 'from', 'keep', 'reader', 'touched', 'ended', 'holes', 'kept',
    'looked')
  s = false
  if h[1] then
    s = {
      ref = ref, m = m, i = BASE .. 'i:' .. ref, d = BASE .. 'd:' .. ref, fence = h[1], head = tonumber(h[2]),
      from = tonumber(h[3]), keep = tonumber(h[4]), reader = h[5] == '1', touched = tonumber(h[6]), ended = h[7],
      holes = h[8] or '', kept = tonumber(h[9]), looked = tonumber(h[10]),
    }
  end
  loaded[ref] = s
  return s
end

local function is_below(fence) return x.sealed and fence < x.sealed end
local function is_over(s) return s.ended or is_below(s.fence) end
local function is_idle(s, millis) return now - s.touched >= millis end
local function is_past(s) return is_over(s) and is_idle(s, AGE) end
-- Whether there is anything that somebody has yet to read.
local function is_held(s) return s.head >= s.keep and not is_idle(s, AGE) end

-- What is told at one place is counted there too, so that nothing is left over when a stream expires by itself.
local function uncount(member)
  local first, last, bytes = string.match(member, '^%S+ (%d+) (%d+) (%d+)$')
  redis.call('ZREM', O, member)
  x.events = x.events - (last - first + 1)
  x.bytes = x.bytes - bytes
end

-- A line of the index: first and last number, bytes, when it was recorded, and what its events are about.
local function line(member)
  local first, last, bytes, at, about = string.match(member, '^(%d+) (%d+) (%d+) (%d+) (.*)$')
  return { first = tonumber(first), last = tonumber(last), bytes = tonumber(bytes), at = tonumber(at), about = about }
end

local function counted(s, l)
  return s.ref .. ' ' .. text(l.first) .. ' ' .. text(l.last) .. ' ' .. text(l.bytes)
end

local function front(s)
  local member = redis.call('ZRANGE', s.i, 0, 0)[1]
  return member and line(member)
end

local function is_free(s, l) return l.last < s.keep or is_idle(s, AGE) end

-- Takes what was recorded first out of a stream. Its numbers are a gap from now on.
local function take(s, l)
  redis.call('ZREMRANGEBYSCORE', s.i, '-inf', text(l.first))
  redis.call('HDEL', s.d, text(l.first))
  uncount(counted(s, l))
  s.from = l.last + 1
  if s.holes ~= '' then
    local left = ''
    for a, b in string.gmatch(s.holes, '(%d+)-(%d+);') do
      if tonumber(b) >= s.from then left = left .. a .. '-' .. b .. ';' end
    end
    s.holes = left
  end
  s.taken = true
end

-- What is older than it may be goes, but not at each call: it may grow a little older.
local function expire(s)
  if now - s.looked < AGE / 16 then return end
  s.looked = now
  local l = front(s)
  while l and now - l.at >= AGE and is_free(s, l) do
    take(s, l)
    l = front(s)
  end
end

local function store(s)
  redis.call('HSET', s.m, 'head', text(s.head), 'from', text(s.from), 'keep', text(s.keep), 'reader',
    s.reader and '1' or '0', 'touched', text(s.touched), 'holes', s.holes, 'looked', text(s.looked))
  s.taken = nil
end

-- Writes down what became of the session and of the other streams.
local function store_session()
  redis.call('HSET', X, 'events', text(x.events), 'bytes', text(x.bytes), 'order', text(x.order),
    'tidied', text(x.tidied))
  for _, s in pairs(loaded) do
    if s and s.taken then redis.call('HSET', s.m, 'from', text(s.from), 'holes', s.holes) end
  end
end

-- Takes a stream, its head and all its events.
local function forget(s)
  for _, member in ipairs(redis.call('ZRANGE', s.i, 0, -1)) do uncount(counted(s, line(member))) end
  redis.call('DEL', s.m, s.i, s.d)
  redis.call('ZREM', S, s.ref)
  loaded[s.ref] = false
end

local function linger(...)
  for _, key in ipairs({ ... }) do redis.call('PEXPIRE', key, text(SILENCE)) end
end

-- Nobody may ever come back for it, so everything expires by itself some time after the last touch.
local function refresh(s)
  if now - s.kept < SILENCE / 16 then return end
  s.kept = now
  redis.call('HSET', s.m, 'kept', text(now))
  linger(X, S, O, s.m, s.i, s.d)
end

-- The stream, unless it is over and nobody came for it in time.
local function find()
  local s = stream(REF)
  if s and is_past(s) then
    forget(s)
    store_session()
    return false
  end
  return s
end

-- Numbers up to `last` were given, and what is not here is lost.
local function miss(s, last)
  if last <= s.head then return end
  if s.from > s.head then
    s.from = last + 1
  else
    s.holes = s.holes .. text(s.head + 1) .. '-' .. text(last) .. ';'
  end
  s.head = last
end

-- The first number after this one, up to the head, whose event is not here.
local function gap(s, after)
  if after >= s.head then return '' end
  if after + 1 < s.from then return text(after + 1) end
  for a, b in string.gmatch(s.holes, '(%d+)-(%d+);') do
    if tonumber(b) > after then return text(math.max(tonumber(a), after + 1)) end
  end
  return ''
end
