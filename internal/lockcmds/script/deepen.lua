-- deepen.lua: the only session of an owner acquires a lock again that it holds.
--
-- It never grants: if the owner has not that grant any more, the session asks under another name. Run again, the script
-- does the same.
--
-- KEYS[1]  lock      hash, see lib/hash.lua; exists only while held
-- KEYS[2]  channel   base channel of the lock; a fair waiter listens on channel:place
-- KEYS[3]  queue     list of places of waiters, first to ask at the head
-- KEYS[4]  timeout   the lease of the owner, if it holds the lock shared; see lib/shared.lua
-- ARGV[1]  owner     that holds it
-- ARGV[2]  fence     of its grant
-- ARGV[3]  publish   PUBLISH, or SPUBLISH in a cluster
-- ARGV[4]  holds     of the session after this
-- ARGV[5]  lease_ms  lease length, > 0
--
-- Returns  {1, fence, holds}  acquired
--          {-1}               the owner does not hold the lock by that grant

local lock, owner, fence, holds, lease = KEYS[1], ARGV[1], ARGV[2], ARGV[4], ARGV[5]
local held = hold_of(lock, owner)
if held.err then
  return held
elseif not held[1] or held[2] ~= fence then
  return {-1}
elseif held[4] == 'read' then
  --@ keep
  --@ tell_rwlock
  --@ free
  --@ longest
  --@ leave_shared
  --@ set_lease
  set_lease(ARGV[3], KEYS[2], KEYS[3], lock, owner, lease)
  put_shared(lock, owner, fence, holds, '')
else
  local pttl = redis.call('PTTL', lock)
  redis.call('HSET', lock, owner, holds)
  redis.call('PEXPIRE', lock, lease)
  if pttl < 0 or pttl > tonumber(lease) then
    wake(ARGV[3], KEYS[2], KEYS[3], lock)
  end
end
return {1, tonumber(fence), tonumber(holds)}
