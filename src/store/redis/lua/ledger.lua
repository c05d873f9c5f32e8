-- What the verbs of the ledger share: its records.
local DUE, KEPT, RECORD = KEYS[2], KEYS[3], KEYS[4]
local NONCE, HORIZON, OUTCOMES = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local KEY, TOKEN, FINGERPRINT, ORIGIN, ATTEMPT, LEASE = ARGV[5], ARGV[6], ARGV[7], ARGV[8], ARGV[9], tonumber(ARGV[10])
local BASE = string.sub(MARKER, 1, -7) .. 'k:'
-- A clock that jumps must not have it forget what ran.
local STEP = 10000

local function enter(grows) remember(grows, NONCE, HORIZON, STEP) end

-- A record: schema, state, token, fingerprint, origin, attempt, until when that holds, its own key and the outcome. The
-- states are C for a claim, R, E, L and U for what came of one (a result, an error, too large, unknown), and X for one
-- that was given back.
local function read(key)
  local r = redis.call('GET', key)
  if not r then return nil end
  if string.sub(r, 1, 1) ~= '1' then error('CORRUPT the record is of another schema') end
  return {
    state = string.sub(r, 2, 2),
    token = string.sub(r, 3, 34),
    fingerprint = string.sub(r, 35, 98),
    origin = string.sub(r, 99, 162),
    attempt = string.sub(r, 163, 170),
    till = num(string.sub(r, 171, 186)),
    key = string.sub(r, 187, 250),
    outcome = string.sub(r, 251),
  }
end

-- When nobody needs it any more: a claim that ran out is unknown for as long as an outcome is kept.
local function over(r) return r.state == 'C' and r.till + OUTCOMES or r.till end

local function forget(hash)
  local length = redis.call('STRLEN', BASE .. hash)
  redis.call('DEL', BASE .. hash)
  redis.call('ZREM', DUE, hash)
  if redis.call('ZREM', KEPT, hash) == 1 then redis.call('HINCRBY', MARKER, 'bytes', 250 - length) end
end

-- Drops what nobody needs any more, so much at a time.
local function sweep(limit)
  for _, hash in ipairs(redis.call('ZRANGEBYSCORE', DUE, '-inf', text(clock), 'LIMIT', 0, limit)) do forget(hash) end
end

-- What is known of the key.
local function find()
  local r = read(RECORD)
  if r and r.key ~= KEY then error('CORRUPT the record of another key') end
  if r and over(r) <= clock then return nil end
  return r
end

local function put(r)
  redis.call('SET', RECORD, '1' .. r.state .. r.token .. r.fingerprint .. r.origin .. r.attempt .. hex(r.till) .. KEY
    .. r.outcome)
  redis.call('ZADD', DUE, text(over(r)), string.sub(RECORD, #BASE + 1))
end

-- The caller's own, in this state.
local function own(state, attempt, till, outcome)
  return { state = state, token = TOKEN, fingerprint = FINGERPRINT, origin = ORIGIN, attempt = attempt, till = till,
    outcome = outcome or '' }
end
