local owner = ARGV[4]
enter()
sweep(16)
if not is_live(owner) then return say('lapsed', inc) end
local lease = string.match(redis.call('HGET', LEASES, owner) or '', '^%d+')
if not lease then error('CORRUPT the lease has no length') end
redis.call('ZADD', UNTIL, clock + tonumber(lease), owner)
return say('extended', inc)
