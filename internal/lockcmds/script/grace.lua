-- grace.lua: the caller's part in a lock is over: shorten what is left of the lease, or release its holds at once.
--
-- It is over because the holder's connection has ended, or because nobody was told of these holds. Waiters are woken
-- by both: they had been told when the longer lease would end. If the owner has other holds, by another proxy, say,
-- the lease stays, and only the caller's holds are released.
--
-- KEYS[1]  lock      hash {owner: holds, fence: n}; exists only while held
-- KEYS[2]  channel   base channel of the lock; a fair waiter listens on channel:place
-- KEYS[3]  queue     list of places of waiters, first to ask at the head
-- ARGV[1]  owner     who held it
-- ARGV[2]  fence     only the grant with this fence; 0: any
-- ARGV[3]  grace_ms  what may be left of the lease; 0: release
-- ARGV[4]  publish   PUBLISH
-- ARGV[5]  holds     how many of the owner's holds are the caller's; 0: all
-- ARGV[6]  lease_ms  least lease that goes on if holds are left; 0: its TTL stays
--
-- Returns  {1}  released, shortened, or short enough already
--          {2}  the owner has other holds: they and the lease stay
--          {0}  the owner is not the holder, or by another grant

local held = redis.pcall('HMGET', KEYS[1], ARGV[1], 'fence')
if held.err then
  return held
end
if not held[1] or (ARGV[2] ~= '0' and held[2] ~= ARGV[2]) then
  return {0}
end
if ARGV[5] ~= '0' and tonumber(held[1]) > tonumber(ARGV[5]) then
  if ARGV[3] == '0' then
    redis.call('HINCRBY', KEYS[1], ARGV[1], '-' .. ARGV[5])
  end
  if ARGV[6] ~= '0' and redis.call('PTTL', KEYS[1]) < tonumber(ARGV[6]) then
    redis.call('PEXPIRE', KEYS[1], ARGV[6])
  end
  return {2}
end
if ARGV[3] ~= '0' then
  local pttl = redis.call('PTTL', KEYS[1])
  if pttl >= 0 and pttl <= tonumber(ARGV[3]) then
    return {1}
  end
  redis.call('PEXPIRE', KEYS[1], ARGV[3])
  wake(ARGV[4], KEYS[2], KEYS[3], KEYS[1])
else
  free(ARGV[4], KEYS[2], KEYS[3], KEYS[1])
end
return {1}
