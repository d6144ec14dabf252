-- look.lua: wake those in the queue of a free lock that is not kept any more.
--
-- It was kept for the first of them that listens, which has not come.
--
-- KEYS[1]  lock     hash, see lib/hash.lua; exists only while held
-- KEYS[2]  channel  base channel of the lock; a waiter listens on channel:place; see kept_for
-- KEYS[3]  queue    list of places of waiters, first to ask at the head
-- ARGV[1]  publish  PUBLISH, or SPUBLISH in a cluster
--
-- Returns  {1}  it is kept: look again
--          {0}  it is held, or they have been told

if redis.call('EXISTS', KEYS[1]) == 1 then
  return {0}
elseif kept_for(KEYS[2], KEYS[1]) then
  return {1}
end
local places = redis.pcall('LRANGE', KEYS[3], '0', '15')
for _, place in ipairs(places.err and {} or places) do
  redis.call(ARGV[1], KEYS[2] .. ':' .. place, '0')
end
return {0}
