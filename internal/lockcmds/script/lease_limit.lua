-- lease_limit.lua: end a permit, or set the end of its lease.
--
-- A permit that another session of its named owner has extended is not the session's own any more: a drop leaves it.
-- Waiters are woken if a permit is left, or its lease ends earlier than they had been told.
--
-- KEYS[1]  lock      string, see lib/permits.lua
-- KEYS[2]  timeouts  leases of the permits
-- KEYS[3]  permits   their names and fences
-- KEYS[4]  owners    those of named owners
-- KEYS[5]  channel   base channel of the lock; a fair waiter listens on channel:place
-- KEYS[6]  queue     list of places of waiters, first to ask at the head
-- ARGV[1]  owner     of the permit
-- ARGV[2]  fence     of the permit; 0: the owner's oldest
-- ARGV[3]  permit    its name, if its fence is not known; else empty
-- ARGV[4]  lease_ms  how long its lease goes on; 0: the permit is over
-- ARGV[5]  drop      1: a lease that ends earlier stays; 0: the lease is set
-- ARGV[6]  by        the session that asks, of a named owner; empty: the owner has one session
-- ARGV[7]  publish   PUBLISH, or SPUBLISH in a cluster
--
-- Returns  {1, fence, 1}     done
--          {1, fence, 1, 0}  the same, and the lock is free, and others wait
--          {-1}              the owner has no such permit

local lock, timeouts, permits, owners = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
--@ permits
local channel, queue, owner, fence, lease, by = KEYS[5], KEYS[6], ARGV[1], ARGV[2], tonumber(ARGV[4]), ARGV[6]
local left, now = left_of(), milliseconds(redis.call('TIME'))
if type(left) == 'table' and not (ARGV[5] == '1' and string.find(left.err, '^WRONGTYPE')) then
  return left
elseif type(left) ~= 'string' then
  return {-1}
end
local permit, ends, own
if ARGV[3] ~= '' then
  permit, fence, ends, own = held_permit(ARGV[3], now)
elseif fence ~= '0' then
  permit, fence, ends, own = permit_with(fence, now)
else
  repeat
    local oldest = redis.call('ZRANGEBYLEX', owners, '[' .. owner .. '{', '(' .. owner .. '|', 'LIMIT', 0, 1)[1]
    if oldest then
      permit, fence, ends, own = permit_with(string.sub(oldest, #owner + 2), now)
    end
    if oldest and not permit then -- a client of Redisson has removed it, because its lease had ended
      redis.call('ZREM', owners, oldest)
    end
  until permit or not oldest
end
if not permit or owner_of_permit(permit) ~= owner or ARGV[5] == '1' and not own then
  return {-1}
end
local elsewhere, at = by ~= '' and not string.find(permit, '#' .. by, 1, true), now + lease
if lease == 0 then
  --@ end_permits
  local waited = end_permits(ARGV[7], channel, queue, {permit}, now)
  if elsewhere then -- its proxy, which may be another one, would find a loss; the text is that of Forced.Message
    redis.pcall('PUBLISH', 'lockproxy:forced', '-' .. fence .. ' ' .. redis.sha1hex(owner .. ' ' .. fence) .. ' ' .. lock)
  end
  return {1, tonumber(fence), 1, waited and 0 or nil}
elseif ARGV[5] ~= '1' or at < ends then
  redis.call('ZADD', timeouts, at, permit)
  if elsewhere then
    redis.call('HSET', permits, permit, '#' .. fence .. '*')
  end
  keep(is_ours())
  if at < ends then
    wake(ARGV[7], channel, queue, lock)
  end
end
return {1, tonumber(fence), 1}
