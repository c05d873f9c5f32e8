-- What the verbs of the directory share: its incarnation, its clock, its leases and its records. See `script.rs`.
local MARKER, UNTIL, LEASES, DUE, TOMBS, GENERATION = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local FIRST = 6
local LONGEST, NONCE = tonumber(ARGV[2]), ARGV[3]
local SESSION = string.sub(MARKER, 1, -7) .. 's:'
local NEVER = string.rep('f', 16)

local inc, clock, recovering

local function hex(n) return string.format('%016x', n) end
local function num(digits) return tonumber(digits, 16) end
local function text(n) return string.format('%.0f', n) end
local function say(...) return { ARGV[1], ... } end

local function wall()
  local t = redis.call('TIME')
  return t[1] * 1000 + math.floor(t[2] / 1000)
end

-- The clock of the directory runs as the server's does, but only as far at a time as cannot cost anybody the lease:
-- a server that was stopped, or whose wall clock was set, has not seen time pass.
local function ticked(raw, last, at, step)
  local passed = raw - last
  if passed < 0 then passed = 0 elseif passed > step then passed = step end
  return at + passed
end

-- A lease may have ended before its time. Whoever counts on one looks at this first; see `peers.rs`.
local function shorten()
  redis.call('SET', GENERATION, inc .. text(redis.call('HINCRBY', MARKER, 'generation', 1)))
end

-- Enters the present incarnation, or begins one where the memory may have been lost: the marker is missing, or another
-- process wrote it. A deletion of nothing comes first. A replica refuses it, a primary without enough replicas too, and
-- after it a server that is out of memory refuses nothing that follows, which only what grows the directory goes without.
local function enter(grows)
  local raw = wall()
  local run = string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')
  if not run then error('CORRUPT the server does not say its run_id') end
  if not grows then redis.call('DEL', MARKER .. ':nothing') end
  local m = redis.call('HMGET', MARKER, 'run', 'inc', 'raw', 'clock', 'born', 'longest', 'step')
  if m[1] ~= run then
    local began = raw
    if m[2] then began = math.max(began, num(string.sub(m[2], 1, 16)) + 1) end
    inc = hex(began) .. NONCE
    clock = math.max(raw, tonumber(m[4] or 0))
    redis.call('HSET', MARKER, 'run', run, 'inc', inc, 'raw', raw, 'clock', clock, 'born', clock,
      'longest', LONGEST, 'step', math.floor(LONGEST / 4))
    -- It takes nobody's word for what an older life granted.
    redis.call('DEL', UNTIL, LEASES)
    shorten()
    recovering = true
    return
  end
  inc = m[2]
  clock = ticked(raw, tonumber(m[3]), tonumber(m[4]), tonumber(m[7]))
  if raw ~= tonumber(m[3]) then redis.call('HSET', MARKER, 'raw', raw, 'clock', clock) end
  local longest = tonumber(m[6])
  -- Whoever grants longer leases may have granted one that is not heard of again.
  if LONGEST > longest then
    redis.call('HSET', MARKER, 'longest', LONGEST)
    longest = LONGEST
  end
  recovering = clock < tonumber(m[5]) + longest
end

-- What is left of a lease, if it is live.
local function left_of(epoch)
  local till = redis.call('ZSCORE', UNTIL, epoch)
  return till and tonumber(till) > clock and tonumber(till) - clock or nil
end

local function is_live(epoch) return left_of(epoch) ~= nil end

-- A record: schema, kind, owner, fence, incarnation and standing of whoever wrote it, residency, when it is over, how
-- long it is kept, its owner's name and the rest, which only the client reads.
local function read(r)
  if not r then return nil end
  if string.sub(r, 1, 1) ~= '1' then error('CORRUPT the record is of another schema') end
  return {
    tomb = string.sub(r, 2, 2) == 'T',
    owner = string.sub(r, 3, 34),
    fence = string.sub(r, 35, 82),
    inc = string.sub(r, 83, 114),
    standing = string.sub(r, 115, 115),
    residency = string.sub(r, 116, 116),
    over = string.sub(r, 117, 132),
    retention = string.sub(r, 133, 148),
    rest = string.sub(r, 153 + num(string.sub(r, 149, 152))),
    text = r,
  }
end

-- The record under a key, unless its time is over.
local function slot(key)
  local r = read(redis.call('GET', key))
  if r and r.over > hex(clock) then return r end
end

local function over(retention)
  if retention == NEVER then return NEVER end
  return hex(clock + num(retention))
end

local function put(key, owner, fence, standing, residency, retention, name, rest)
  local till = over(retention)
  redis.call('SET', key, '1S' .. owner .. fence .. inc .. standing .. residency .. till .. retention
    .. string.format('%04x', #name) .. name .. rest)
  redis.call('ZADD', DUE, till == NEVER and '+inf' or num(till), string.sub(key, #SESSION + 1))
end

local function entomb(key, kept, rest)
  local hash = string.sub(key, #SESSION + 1)
  local till = clock + kept
  local none = string.rep('0', 32)
  redis.call('SET', key, '1T' .. none .. none .. '0000000000000000' .. inc .. 'U' .. 'P' .. hex(till) .. NEVER
    .. '0000' .. rest)
  redis.call('ZREM', DUE, hash)
  redis.call('ZADD', TOMBS, till, hash)
end

-- Takes what is over, so much at a time.
local function sweep(limit)
  for _, index in ipairs({ DUE, TOMBS }) do
    for _, hash in ipairs(redis.call('ZRANGEBYSCORE', index, '-inf', clock, 'LIMIT', 0, limit)) do
      redis.call('DEL', SESSION .. hash)
      redis.call('ZREM', index, hash)
    end
  end
end

-- The grant after this one; `same` is the next one of its own incarnation.
local function above(fence, same)
  if inc > string.sub(fence, 1, 32) then return inc .. '0000000000000001' end
  return same
end
