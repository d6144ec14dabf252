-- bound.lua: give a held lock a TTL again that a client has removed, as by PERSIST.
--
-- Without a TTL it would not end with its holder. A holder that is alive renews it before that ends. A hash without the
-- mode and the fence of a lock of ours is an application's, or Redisson's. Run again the script changes nothing.
--
-- Returns  1  the lock ends within that time, if it is not renewed
--          0  nothing was done

local lock = unpack(KEYS)
local lease = unpack(ARGV)

local held = redis.pcall('HMGET', lock, 'mode', 'fence')
local ours = held[1] == 'lock' and held[2] or held[1] == 'read' and shares_ours(lock)
if not ours or redis.call('PTTL', lock) ~= -1 then
  return 0
end
redis.call('PEXPIRE', lock, lease)
return 1
