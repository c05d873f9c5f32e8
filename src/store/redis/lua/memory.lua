-- What the directory and the ledger share: which life of the server's memory this is, and their clock. See `script.rs`.
local MARKER = KEYS[1]
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

-- Enters the present incarnation, or begins one where the memory may have been lost: the marker is missing, or another
-- process wrote it. Until `longest` after that it is recovering. Says whether it began one.
--
-- A deletion of nothing comes first. A replica refuses it, a primary without enough replicas too, and after it a server
-- that is out of memory refuses nothing that follows, which only what grows the store goes without.
local function remember(grows, nonce, longest, step)
  local raw = wall()
  local run = string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')
  if not run then error('CORRUPT the server does not say its run_id') end
  if not grows then redis.call('DEL', MARKER .. ':nothing') end
  local m = redis.call('HMGET', MARKER, 'run', 'inc', 'raw', 'clock', 'born', 'longest', 'step')
  if m[1] ~= run then
    local began = raw
    if m[2] then began = math.max(began, num(string.sub(m[2], 1, 16)) + 1) end
    inc = hex(began) .. nonce
    clock = math.max(raw, tonumber(m[4] or 0))
    redis.call('HSET', MARKER, 'run', run, 'inc', inc, 'raw', text(raw), 'clock', text(clock), 'born', text(clock),
      'longest', text(longest), 'step', text(step))
    recovering = true
    return true
  end
  inc = m[2]
  clock = ticked(raw, tonumber(m[3]), tonumber(m[4]), tonumber(m[7]))
  if raw ~= tonumber(m[3]) then redis.call('HSET', MARKER, 'raw', text(raw), 'clock', text(clock)) end
  -- Whoever asks for longer may have been given it by a life that is not heard of again.
  if longest > tonumber(m[6]) then
    redis.call('HSET', MARKER, 'longest', text(longest))
  else
    longest = tonumber(m[6])
  end
  recovering = clock < tonumber(m[5]) + longest
  return false
end

