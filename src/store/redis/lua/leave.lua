local owner = ARGV[4]
enter()
redis.call('ZREM', UNTIL, owner)
redis.call('HDEL', LEASES, owner)
shorten()
return say('left')
