-- extend.lua: reset the lease of a lock its owner holds.
--
-- Waiters are woken if it ends earlier now than they had been told.
--
-- KEYS[1]  lock      hash {owner: holds, fence: n}; exists only while held
-- KEYS[2]  channel   base channel of the lock; a fair waiter listens on channel:place
-- KEYS[3]  queue     list of places of waiters, first to ask at the head
-- ARGV[1]  owner     who holds it
-- ARGV[2]  lease_ms  new lease length from now, > 0
-- ARGV[3]  publish   PUBLISH
--
-- Returns  {1, fence, holds}  reset
--          {-1}               the owner is not the holder

local held = redis.pcall('HMGET', KEYS[1], ARGV[1], 'fence')
if held.err then
  return held
end
if not held[1] then
  return {-1}
end
local pttl = redis.call('PTTL', KEYS[1])
redis.call('PEXPIRE', KEYS[1], ARGV[2])
if pttl < 0 or pttl > tonumber(ARGV[2]) then
  wake(ARGV[3], KEYS[2], KEYS[3], KEYS[1])
end
return {1, tonumber(held[2] or 0), tonumber(held[1])}
