-- leave.lua: a fair waiter gives up its place in the queue.
--
-- If it was the head of a free lock, the new head is woken: nobody else would do it. So is who waits for the same owner
-- elsewhere, and has lost its place. O(log n) of the places for the head, O(n) for others.
--
-- KEYS[1]  queue      list of waiting owners, first to ask at the head
-- KEYS[2]  deadlines  zset owner -> epoch ms after which the place may be dropped
-- KEYS[3]  lock       hash {owner: holds, fence: n}; exists only while held
-- KEYS[4]  channel    base channel of the lock; a waiter listens on channel:owner
-- ARGV[1]  owner      who leaves
-- ARGV[2]  publish    PUBLISH or SPUBLISH
--
-- Returns  {removed}  1 if it was in the queue, else 0

local owner = ARGV[1]
local first = redis.call('LINDEX', KEYS[1], 0) == owner
if redis.call('ZREM', KEYS[2], owner) == 0 and not first then
  return {0}
end
if redis.call('LREM', KEYS[1], 1, owner) == 0 then
  return {0}
end
redis.call(ARGV[2], KEYS[4] .. ':' .. owner, '0')
local head = first and redis.call('LINDEX', KEYS[1], 0)
if head and redis.call('EXISTS', KEYS[3]) == 0 then
  redis.call(ARGV[2], KEYS[4] .. ':' .. head, '0')
end
return {1}
