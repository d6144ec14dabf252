-- handover.lua: release, and grant to a waiter of the same proxy in one step, unless a fair waiter is queued.
--
-- Nobody is woken by a hand-over: the lock is never free. With fair waiters it is a plain release.
--
-- KEYS[1]  lock           hash {owner: holds, fence: n}; exists only while held
-- KEYS[2]  channel        base channel of the lock; a fair waiter listens on channel:owner
-- KEYS[3]  queue          list of waiting owners, first to ask at the head
-- KEYS[4]  fence          counter of this hash slot; never expires, never goes back
-- ARGV[1]  owner          who releases
-- ARGV[2]  lease_ms       lease that goes on if holds are left; 0: its TTL stays
-- ARGV[3]  fence          release only the grant with this fence; 0: any
-- ARGV[4]  publish        PUBLISH or SPUBLISH
-- ARGV[5]  next_owner     who gets the lock, another owner
-- ARGV[6]  next_lease_ms  its lease length, > 0
--
-- Returns  {2, new fence, fence}  released, and granted to next_owner
--          {1, fence, receivers}  released; receivers of the message on the base channel
--          {0, holds, fence}      still held, with so many holds left
--          {-1}                   the owner is not the holder
--          {-2, fence}            it is, but by a grant with another fence

local held = redis.pcall('HMGET', KEYS[1], ARGV[1], 'fence')
if held.err then
  return held
end
if not held[1] then
  return {-1}
end
local fence = tonumber(held[2] or 0)
if ARGV[3] ~= '0' and fence ~= tonumber(ARGV[3]) then
  return {-2, fence}
end
if tonumber(held[1]) > 1 then
  local holds = redis.call('HINCRBY', KEYS[1], ARGV[1], -1)
  if ARGV[2] ~= '0' then
    redis.call('PEXPIRE', KEYS[1], ARGV[2])
  end
  return {0, holds, fence}
end
redis.call('DEL', KEYS[1])
local head = redis.call('LINDEX', KEYS[3], 0)
if head then
  local receivers = redis.call(ARGV[4], KEYS[2], '0')
  redis.call(ARGV[4], KEYS[2] .. ':' .. head, '0')
  return {1, fence, receivers}
end
local time = redis.call('TIME')
local new = time[1] * 1000000 + time[2]
local last = tonumber(redis.call('SET', KEYS[4], string.format('%.0f', new), 'GET') or 0)
if last and last >= new then
  new = last + 1
  redis.call('SET', KEYS[4], string.format('%.0f', new))
end
redis.call('HSET', KEYS[1], ARGV[5], 1, 'fence', string.format('%.0f', new))
redis.call('PEXPIRE', KEYS[1], ARGV[6])
return {2, new, fence}
