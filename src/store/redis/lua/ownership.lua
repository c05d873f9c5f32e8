-- What the verbs of the directory share: its leases and its records.
local UNTIL, LEASES, DUE, TOMBS, GENERATION = KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local FIRST = 6
local LONGEST, NONCE = tonumber(ARGV[2]), ARGV[3]
local SESSION = string.sub(MARKER, 1, -7) .. 's:'
local NEVER = string.rep('f', 16)

-- A lease may have ended before its time. Whoever counts on one looks at this first; see `peers.rs`.
local function shorten()
  redis.call('SET', GENERATION, inc .. text(redis.call('HINCRBY', MARKER, 'generation', 1)))
end

local function enter(grows)
  if remember(grows, NONCE, LONGEST, math.floor(LONGEST / 4)) then
    -- It takes nobody's word for what an older life granted.
    redis.call('DEL', UNTIL, LEASES)
    shorten()
  end
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
