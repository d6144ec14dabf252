-- extend.lua: reset the lease of a lock its owner holds.
--
-- Waiters are woken if it ends earlier now than they had been told.
--
-- KEYS[1]  lock      hash, see lib/hash.lua; exists only while held
-- KEYS[2]  channel   base channel of the lock; a fair waiter listens on channel:place
-- KEYS[3]  queue     list of places of waiters, first to ask at the head
-- ARGV[1]  owner     that holds it
-- ARGV[2]  lease_ms  new lease length from now, > 0
-- ARGV[3]  publish   PUBLISH, or SPUBLISH in a cluster
-- ARGV[4]  fence     only the grant with this fence; 0: any
-- ARGV[5]  field     for a named owner, see by_with in lib/hold.lua; empty: the owner has one session
--
-- Returns  {1, fence, holds}  reset
--          {-1}               the owner is not the holder
--          {-2, fence}        it is, but by a grant with another fence

local held = hold_of(KEYS[1], ARGV[1])
if held.err then
  return held
elseif not held[1] then
  return {-1}
elseif ARGV[4] ~= '0' and held[2] ~= ARGV[4] then
  return {-2, tonumber(held[2] or 0)}
end
local by = ARGV[5] == '' and '' or by_with(held[3], ARGV[5])
if held[4] == 'read' then
  --@ keep
  --@ tell_rwlock
  --@ free
  --@ longest
  --@ leave_shared
  --@ set_lease
  set_lease(ARGV[3], KEYS[2], KEYS[3], KEYS[1], ARGV[1], ARGV[2])
  put_shared(KEYS[1], ARGV[1], held[2], held[1], by)
else
  local pttl = redis.call('PTTL', KEYS[1])
  redis.call('PEXPIRE', KEYS[1], ARGV[2]) -- first: a Redis out of memory refuses a script that begins with HSET
  if by ~= '' then
    redis.call('HSET', KEYS[1], '{by}', by)
  end
  if pttl < 0 or pttl > tonumber(ARGV[2]) then
    wake(ARGV[3], KEYS[2], KEYS[3], KEYS[1])
  end
end
return {1, tonumber(held[2] or 0), tonumber(held[1])}
