-- bound.lua: give a held lock a TTL again that a client has removed, as by PERSIST.
--
-- Without a TTL it would not end with its holder. A holder that is alive renews it before that ends. A hash without the
-- mode and the fence of a lock of ours is an application's, or Redisson's. Run again the script changes nothing.
--
-- KEYS[1]  lock      hash, see lib/hash.lua; exists only while held
-- ARGV[1]  lease_ms  to which the TTL is set, > 0
--
-- Returns  1  the lock ends within that time, if it is not renewed
--          0  nothing was done

local held = redis.pcall('HMGET', KEYS[1], 'mode', 'fence')
local ours = held[1] == 'lock' and held[2] or held[1] == 'read' and shares_ours(KEYS[1])
if not ours or redis.call('PTTL', KEYS[1]) ~= -1 then
  return 0
end
redis.call('PEXPIRE', KEYS[1], ARGV[1])
return 1
