-- release.lua: give back one hold; with the last one free the lock and wake plain waiters and the fair head.
--
-- KEYS[1]  lock      hash {owner: holds, fence: n}; exists only while held
-- KEYS[2]  channel   base channel of the lock; a fair waiter listens on channel:owner
-- KEYS[3]  queue     list of waiting owners, first to ask at the head
-- ARGV[1]  owner     who releases
-- ARGV[2]  lease_ms  lease that goes on if holds are left; 0: its TTL stays
-- ARGV[3]  fence     release only the grant with this fence; 0: any
-- ARGV[4]  publish   PUBLISH or SPUBLISH
--
-- Returns  fence              released; 0: it was taken without one
--          {0, holds, fence}  still held, with so many holds left
--          {-1}               the owner is not the holder
--          {-2, fence}        it is, but by a grant with another fence

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
redis.call(ARGV[4], KEYS[2], '0')
local head = redis.call('LINDEX', KEYS[3], 0)
if head then
  redis.call(ARGV[4], KEYS[2] .. ':' .. head, '0')
end
return fence
