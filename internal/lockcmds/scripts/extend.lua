-- extend.lua: reset the lease of a lock its owner holds.
--
-- KEYS[1]  lock      hash {owner: holds, fence: n}; exists only while held
-- ARGV[1]  owner     who holds it
-- ARGV[2]  lease_ms  new lease length from now, > 0
--
-- Returns  {1, fence, holds}  reset
--          {-1}               the owner is not the holder

local held = redis.pcall('HMGET', KEYS[1], ARGV[1], 'fence')
if held.err then
  return held
end
if not held[1] then
  return {-1}
end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return {1, tonumber(held[2] or 0), tonumber(held[1])}
