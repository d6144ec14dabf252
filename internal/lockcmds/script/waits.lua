-- waits.lua: tell other proxies for which lock an owner waits, or ask that of an owner.
--
-- KEYS[1]  waits   text; ends soon if its proxy does not tell it again
-- ARGV[1]  text    of the wait; absent: ask
-- ARGV[2]  ttl_ms  for how long it counts, > 0
--
-- Returns  text  of the wait
--          nil   it is not known that the owner waits

if not ARGV[1] then
  return redis.call('GET', KEYS[1])
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return ARGV[1]
