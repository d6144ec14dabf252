-- force.lua: free a lock of any holder, and wake plain waiters and the fair head.
--
-- KEYS[1]  lock     hash, see lib/hash.lua; exists only while held
-- KEYS[2]  channel  base channel of the lock; a fair waiter listens on channel:place
-- KEYS[3]  queue    list of places of waiters, first to ask at the head
-- ARGV[1]  publish  PUBLISH, or SPUBLISH in a cluster
-- ARGV[2]  fence    of the grant that is meant; 0: any
--
-- Returns  {owner, fence}  whose grant was ended; the owner is text; fence 0: it was taken without one
--          {}              it was free, or held by another grant

local held = holder(KEYS[1])
if #held == 0 then
  return held
end
if ARGV[2] ~= '0' and held[3] ~= tonumber(ARGV[2]) then
  return {}
end
free(ARGV[1], KEYS[2], KEYS[3], KEYS[1])
return {held[1], held[3]}
