-- acquire.lua: take a free lock that is kept for nobody, or deepen a hold its owner already has.
--
-- KEYS[1]  lock      hash {owner: holds, fence: n}; exists only while held
-- KEYS[2]  fence     counter of this hash slot; never expires, never goes back
-- KEYS[3]  channel   base channel of the lock; as a key it says for which place the free lock is kept
-- ARGV[1]  owner     opaque, non-empty, not 'fence' or 'mode'
-- ARGV[2]  lease_ms  lease length, > 0
-- ARGV[3]  publish   PUBLISH; absent: nobody waits for the same owner
-- ARGV[4]  tell      channel on which those who do are told of a first hold
--
-- Returns  {1, fence, holds}  acquired; a first hold as the bare fence, or {1, fence, 1, 1}: the counter held no
--                             fence
--          {0, pttl_ms}       held by another owner; -1: without a TTL; -2: it is free, but kept for one that waits

local pttl = redis.call('PTTL', KEYS[1])
if pttl == -2 then
  if kept_for(KEYS[3], KEYS[1]) then
    return {0, -2}
  end
  if ARGV[3] then
    redis.call(ARGV[3], ARGV[4], '0')
  end
  return first(grant(KEYS[1], KEYS[2], ARGV[1], '1', ARGV[2], redis.call('TIME')))
end
local held = redis.pcall('HMGET', KEYS[1], ARGV[1], 'fence')
if held.err then
  return held
end
if not held[1] then
  return {0, pttl}
end
local holds = redis.call('HINCRBY', KEYS[1], ARGV[1], 1)
local fence, replaced = held[2] and tonumber(held[2]), nil
if fence then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
else -- taken without one, by Redisson
  fence, replaced = grant(KEYS[1], KEYS[2], ARGV[1], holds, ARGV[2], redis.call('TIME'))
end
return {1, fence, holds, replaced}
