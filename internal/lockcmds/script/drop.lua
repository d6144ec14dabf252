-- drop.lua: end a grant that no client relies on, or shorten its lease.
--
-- Unlike a release it may find that there is nothing to do. A grant is known by its owner, whose name does not come
-- back, or also by its fence: so the script may run at any time, and any number of times. Of a named owner it ends the
-- grant that the acquire has made, if no other session has taken part in it. Waiters are woken if the lock is free
-- then, or the lease ends earlier than they had been told.
--
-- KEYS[1]  lock      hash, see lib/hash.lua; exists only while held
-- KEYS[2]  channel   base channel of the lock; a fair waiter listens on channel:place
-- KEYS[3]  queue     list of places of waiters, first to ask at the head
-- ARGV[1]  owner     that held it
-- ARGV[2]  fence     only the grant with this fence; 0: any
-- ARGV[3]  keep_ms   the most that may be left of the lease; 0: the grant ends
-- ARGV[4]  publish   PUBLISH, or SPUBLISH in a cluster
-- ARGV[5]  name      the acquire of a named owner that made the grant; empty: the owner has no other acquire
--
-- Returns  {1}  done
--          {2}  another session takes part in the grant of a named owner
--          {0}  the owner does not hold the lock by that grant

local lock, owner, keep, publish, name = KEYS[1], ARGV[1], ARGV[3], ARGV[4], ARGV[5]
local held = hold_of(lock, owner)
local shared = held[4] == 'read'
if held.err then
  return string.find(held.err, '^WRONGTYPE') and {0} or held
elseif not held[1] or ARGV[2] ~= '0' and held[2] ~= ARGV[2] then
  return {0}
elseif name ~= '' and held[3] ~= name then
  return {2}
elseif shared and keep == '0' then
  leave_shared(publish, KEYS[2], KEYS[3], lock, owner)
elseif shared then
  local left = redis.call('PTTL', timeout_of(lock, name_of(lock, owner)))
  if left > tonumber(keep) then
    settle_shared(publish, KEYS[2], KEYS[3], lock, left, owner, keep)
  end
elseif keep == '0' then
  free(publish, KEYS[2], KEYS[3], lock)
else
  local pttl = redis.call('PTTL', lock)
  if pttl < 0 or pttl > tonumber(keep) then
    redis.call('PEXPIRE', lock, keep)
    wake(publish, KEYS[2], KEYS[3], lock)
  end
end
return {1}
