-- leave.lua: a waiter gives up its place in the fair queue.
--
-- If it was the first of a free lock, the next one is woken: nobody else would do it. So is a waiter of the same owner
-- elsewhere, which has lost its place. O(log n) of the places for the first, O(n) for others.
--
-- KEYS[1]  queue      list of places of waiters, first to ask at the head
-- KEYS[2]  deadlines  zset place -> epoch ms after which it may be dropped
-- KEYS[3]  lock       hash {owner: holds, fence: n}; exists only while held
-- KEYS[4]  channel    base channel of the lock; a waiter listens on channel:place
-- ARGV[1]  place      whose
-- ARGV[2]  publish    PUBLISH
--
-- Returns  {removed}  1 if it was in the queue, else 0

local place = ARGV[1]
local first = head_of(KEYS[1], KEYS[3]) == place
if redis.call('ZREM', KEYS[2], place) == 0 and not first then
  return {0}
end
if redis.call('LREM', KEYS[1], 1, place) == 0 then
  return {0}
end
redis.call(ARGV[2], KEYS[4] .. ':' .. place, '0')
local head = first and head_of(KEYS[1], KEYS[3])
if head and redis.call('EXISTS', KEYS[3]) == 0 then
  redis.call(ARGV[2], KEYS[4] .. ':' .. head, '0')
end
return {1}
