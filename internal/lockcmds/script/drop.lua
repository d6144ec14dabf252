-- drop.lua: a session's part in a grant is over, or it was not told of it: release its holds at once, or shorten the
-- lease.
--
-- Unlike a release it may find that there is nothing to do. Waiters are woken if the lock is free then, or the lease
-- ends earlier than they had been told. Run again, the script changes nothing. Overtaken by a later call of an owner's
-- only session, it changes nothing either: that call has written the holds. Of a named owner it ends the grant that the
-- session's acquire has made, if no other session has taken part in it.
--
-- KEYS[1]  lock      hash, see lib/hash.lua; exists only while held
-- KEYS[2]  channel   base channel of the lock; a fair waiter listens on channel:place
-- KEYS[3]  queue     list of places of waiters, first to ask at the head
-- KEYS[4]  timeout   the lease of the owner, if it holds the lock shared
-- ARGV[1]  owner     that held it
-- ARGV[2]  fence     only the grant with this fence; 0: any
-- ARGV[3]  holds     how many the owner's only session keeps
-- ARGV[4]  publish   PUBLISH, or SPUBLISH in a cluster
-- ARGV[5]  request   number of this call, larger than those of earlier calls of the session
-- ARGV[6]  grace_ms  the most that may be left of the lease; 0: release
-- ARGV[7]  by        the acquire of a named owner; empty: the owner has one session
-- ARGV[8]  lease_ms  to which the lease is set if holds are left; 0: its TTL stays
--
-- Returns  {1}  the lock is released, or the lease is short enough now
--          {2}  the grant goes on: the owner has other holds, or this call or a later one was executed before
--          {0}  the owner does not hold the lock by that grant

local lock, owner, by = KEYS[1], ARGV[1], ARGV[7]
local held = hold_of(lock, owner, by)
local shared = held[4] == 'read'
if held.err then
  return string.find(held.err, '^WRONGTYPE') and {0} or held
end
if not held[1] or ARGV[2] ~= '0' and held[2] ~= ARGV[2] then
  return {0}
elseif by ~= '' and held[3] ~= by then
  return {2}
elseif by == '' and (tonumber(held[3] or 0) or 0) >= tonumber(ARGV[5]) then
  return {2}
end
if by == '' and ARGV[3] ~= '0' then
  if shared then
    put_shared(lock, owner, held[2], ARGV[3], ARGV[5])
    if ARGV[8] ~= '0' then
      lengthen_shared(lock, owner, ARGV[8])
    end
    return {2}
  end
  redis.call('HSET', lock, owner, ARGV[3], '{request}', ARGV[5])
  if ARGV[8] ~= '0' and redis.call('PTTL', lock) > tonumber(ARGV[8]) then
    redis.call('PEXPIRE', lock, ARGV[8]) -- no other session can have set the longer one
    wake(ARGV[4], KEYS[2], KEYS[3], lock)
  elseif ARGV[8] ~= '0' then
    lengthen(lock, ARGV[8])
  end
  return {2}
end
if shared and ARGV[6] == '0' then
  leave_shared(ARGV[4], KEYS[2], KEYS[3], lock, owner)
  return {1}
elseif shared then
  local left = redis.call('PTTL', timeout_of(lock, name_of(lock, owner)))
  if left > tonumber(ARGV[6]) then
    settle_shared(ARGV[4], KEYS[2], KEYS[3], lock, left, owner, ARGV[6])
  end
  put_shared(lock, owner, held[2], held[1], by == '' and ARGV[5] or by)
  return {1}
end
if ARGV[6] == '0' then
  free(ARGV[4], KEYS[2], KEYS[3], lock)
  return {1}
end
local pttl = redis.call('PTTL', lock)
if pttl < 0 or pttl > tonumber(ARGV[6]) then
  redis.call('PEXPIRE', lock, ARGV[6])
  wake(ARGV[4], KEYS[2], KEYS[3], lock)
end
if by == '' then -- A late copy must not make the lease longer again. Without memory Redis refuses the number alone.
  redis.pcall('HSET', lock, '{request}', ARGV[5])
end
return {1}
