-- force.lua: free a lock whoever holds it, and wake plain waiters and the fair head.
--
-- KEYS[1]  lock     hash {owner: holds, fence: n}; exists only while held
-- KEYS[2]  channel  base channel of the lock; a fair waiter listens on channel:owner
-- KEYS[3]  queue    list of waiting owners, first to ask at the head
-- ARGV[1]  publish  PUBLISH or SPUBLISH
--
-- Returns  fence  of the grant that was ended; 0: it was taken without one
--          {0}    there was none

local fence = redis.pcall('HGET', KEYS[1], 'fence')
if type(fence) == 'table' then
  return fence
end
if redis.call('EXISTS', KEYS[1]) == 0 then
  return {0}
end
redis.call('DEL', KEYS[1])
wake(ARGV[1], KEYS[2], KEYS[3])
return tonumber(fence or 0)
