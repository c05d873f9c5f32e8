local owner, name, address, standing = ARGV[4], ARGV[5], ARGV[7], ARGV[8]
local lease, kept, tombs = math.min(tonumber(ARGV[6]), LONGEST), tonumber(ARGV[9]), tonumber(ARGV[10])
enter()
sweep(64)
for _, lapsed in ipairs(redis.call('ZRANGEBYSCORE', UNTIL, '-inf', clock, 'LIMIT', 0, 64)) do
  redis.call('ZREM', UNTIL, lapsed)
  redis.call('HDEL', LEASES, lapsed)
end
if (left_of(owner) or 0) > lease then shorten() end
redis.call('ZADD', UNTIL, clock + lease, owner)
redis.call('HSET', LEASES, owner, lease .. ' ' .. address)
local step = math.max(math.floor(lease / 4), 1)
if step < tonumber(redis.call('HGET', MARKER, 'step')) then redis.call('HSET', MARKER, 'step', step) end

local at, key = 11, FIRST
for _ = 1, tombs do
  key = key + 1
  if recovering then entomb(KEYS[key], kept, ARGV[at]) end
  at = at + 1
end

local function claim(where, fence, same, residency, retention, rest)
  local r = slot(where)
  if r and r.tomb then return 'buried' end
  if r then
    local mine = r.owner == owner and r.fence == fence
    -- While recovering, what stands here may be an old replica's or a lapsed owner's word.
    local other = r.inc == inc and r.standing or 'L'
    local better = recovering and (standing > other or (standing == other and fence > r.fence))
    if not mine and not better then return 'taken' end
  elseif not recovering then
    return 'absent'
  end
  local granted = fence
  -- The first grant of a new life is above everything that the old one granted.
  if standing == 'L' and not recovering and string.sub(fence, 1, 32) ~= inc then granted = above(fence, same) end
  put(where, owner, granted, standing, residency, retention, name, rest)
  if recovering and standing == 'L' then return 'noted' end
  return granted
end

local reply = say('claimed', inc, tostring(lease))
while key < #KEYS do
  key = key + 1
  reply[#reply + 1] = claim(KEYS[key], ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3], ARGV[at + 4])
  at = at + 5
end
return reply
