local below, id = ARGV[9], ARGV[10]
session()
if x.id and x.id ~= id then error('CORRUPT the log of another session') end
steady()
local function each(visit)
  for _, ref in ipairs(redis.call('ZRANGE', S, 0, -1)) do
    local s = stream(ref)
    if s then visit(s) else redis.call('ZREM', S, ref) end
  end
end
each(function(s) if is_past(s) then forget(s) end end)
each(function(s)
  -- Whoever comes for what is over now has the time that there is from the end on.
  if not is_over(s) and s.fence < below then redis.call('HSET', s.m, 'touched', text(now)) end
end)
if not x.sealed or x.sealed < below then x.sealed = below end
redis.call('HSET', X, 'schema', '1', 'id', id, 'sealed', x.sealed)
store_session()
linger(X)
return say('sealed')
