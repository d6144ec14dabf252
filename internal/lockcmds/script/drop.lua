-- drop.lua: a session's part in a grant is over, or it was not told of it: release its holds at once, or shorten the
-- lease.
--
-- Unlike a release it may find that there is nothing to do. Waiters are woken if the lock is free then, or the lease
-- ends earlier than they had been told. Run again, the script does the same: it finds that grant, or none. Of a named
-- owner it ends the grant that the session's acquire has made, if no other session has taken part in it.
--
-- KEYS[1]  lock      hash, see lib/hash.lua; exists only while held
-- KEYS[2]  channel   base channel of the lock; a fair waiter listens on channel:place
-- KEYS[3]  queue     list of places of waiters, first to ask at the head
-- KEYS[4]  timeout   the lease of the owner, if it holds the lock shared
-- ARGV[1]  owner     that held it
-- ARGV[2]  fence     only the grant with this fence; 0: any
-- ARGV[3]  holds     how many the owner's only session keeps
-- ARGV[4]  publish   PUBLISH, or SPUBLISH in a cluster
-- ARGV[5]  grace_ms  the most that may be left of the lease; 0: release
-- ARGV[6]  lease_ms  to which the lease is set if holds are left; 0: its TTL stays
-- ARGV[7]  name      the acquire of a named owner that made the grant; empty: the owner has no other acquire
--
-- Returns  {1}  the lock is released, or the lease is short enough now
--          {2}  the grant goes on: the owner has other holds, or another session takes part in it
--          {0}  the owner does not hold the lock by that grant

local lock, owner, holds, publish, grace, lease, name = KEYS[1], ARGV[1], ARGV[3], ARGV[4], ARGV[5], ARGV[6], ARGV[7]
local held = hold_of(lock, owner)
local shared = held[4] == 'read'
if held.err then
  return string.find(held.err, '^WRONGTYPE') and {0} or held
elseif not held[1] or ARGV[2] ~= '0' and held[2] ~= ARGV[2] then
  return {0}
elseif name ~= '' and held[3] ~= name then
  return {2}
elseif name == '' and holds ~= '0' then
  if shared then
    put_shared(lock, owner, held[2], holds, '')
    if lease ~= '0' then
      lengthen_shared(lock, owner, lease)
    end
    return {2}
  end
  redis.call('HSET', lock, owner, holds)
  if lease ~= '0' and redis.call('PTTL', lock) > tonumber(lease) then
    redis.call('PEXPIRE', lock, lease) -- no other session can have set the longer one
    wake(publish, KEYS[2], KEYS[3], lock)
  elseif lease ~= '0' then
    lengthen(lock, lease)
  end
  return {2}
elseif shared and grace == '0' then
  leave_shared(publish, KEYS[2], KEYS[3], lock, owner)
elseif shared then
  local left = redis.call('PTTL', timeout_of(lock, name_of(lock, owner)))
  if left > tonumber(grace) then
    settle_shared(publish, KEYS[2], KEYS[3], lock, left, owner, grace)
  end
elseif grace == '0' then
  free(publish, KEYS[2], KEYS[3], lock)
else
  local pttl = redis.call('PTTL', lock)
  if pttl < 0 or pttl > tonumber(grace) then
    redis.call('PEXPIRE', lock, grace)
    wake(publish, KEYS[2], KEYS[3], lock)
  end
end
return {1}
