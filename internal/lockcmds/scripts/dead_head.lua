-- dead_head.lua: remove the head of a free lock's queue if nobody listens on its channel, or it is known to be deaf.
--
-- A live waiter subscribes within seconds of queueing. The caller has seen this head, and the lock free, for that long.
-- The message that asks is also a wake-up, so a live head that missed its turn takes it now. O(log n) of the places.
--
-- KEYS[1]  lock       hash {owner: holds, fence: n}; exists only while held
-- KEYS[2]  queue      list of waiting owners, first to ask at the head
-- KEYS[3]  deadlines  zset owner -> epoch ms after which the place may be dropped
-- KEYS[4]  channel    base channel of the lock; a waiter listens on channel:owner
-- ARGV[1]  head       the owner believed dead
-- ARGV[2]  publish    PUBLISH or SPUBLISH
-- ARGV[3]  deaf       1: remove it though somebody listens: it was woken often enough, and its turn is over
--
-- Returns  {1, receivers}  removed, and the next head woken
--          {0, receivers}  nothing done: not free, not the head any more, or alive (receivers > 0)

if redis.call('EXISTS', KEYS[1]) == 1 or redis.call('LINDEX', KEYS[2], 0) ~= ARGV[1] then
  return {0, 0}
end
local receivers = redis.call(ARGV[2], KEYS[4] .. ':' .. ARGV[1], '0')
if receivers > 0 and ARGV[3] ~= '1' then
  return {0, receivers}
end
take_turn(KEYS[2], KEYS[3], ARGV[1])
local next = redis.call('LINDEX', KEYS[2], 0)
if next then
  redis.call(ARGV[2], KEYS[4] .. ':' .. next, '0')
end
return {1, receivers}
