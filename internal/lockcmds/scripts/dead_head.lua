-- dead_head.lua: remove the head of a free lock's queue if nobody listens on its channel, or it is known to be deaf.
--
-- A live waiter subscribes within seconds of queueing. The caller has seen this head, and the lock free, for that long.
-- The message that asks is also a wake-up, so a live head that missed its turn takes it now. O(queue length).
--
-- KEYS[1]  lock       hash {owner: holds, fence: n}; exists only while held
-- KEYS[2]  queue      list of waiting owners, first to ask at the head
-- KEYS[3]  deadlines  zset owner -> epoch ms after which anybody may drop it
-- KEYS[4]  channel    base channel of the lock; a waiter listens on channel:owner
-- ARGV[1]  head       the owner believed dead
-- ARGV[2]  publish    PUBLISH or SPUBLISH
-- ARGV[3]  wait_ms    spacing of deadlines, taken off those behind it
-- ARGV[4]  deaf       1: remove it though somebody listens: it was woken often enough, and its turn is over
--
-- Returns  {1, receivers}  removed, and the next head woken
--          {0, receivers}  nothing done: not free, not the head any more, or alive (receivers > 0)

if redis.call('EXISTS', KEYS[1]) == 1 or redis.call('LINDEX', KEYS[2], 0) ~= ARGV[1] then
  return {0, 0}
end
local receivers = redis.call(ARGV[2], KEYS[4] .. ':' .. ARGV[1], '0')
if receivers > 0 and ARGV[4] ~= '1' then
  return {0, receivers}
end
redis.call('LPOP', KEYS[2])
redis.call('ZREM', KEYS[3], ARGV[1])
local behind = redis.call('LRANGE', KEYS[2], 0, -1)
for _, waiter in ipairs(behind) do
  redis.call('ZADD', KEYS[3], 'XX', 'INCR', '-' .. ARGV[3], waiter)
end
if behind[1] then
  redis.call(ARGV[2], KEYS[4] .. ':' .. behind[1], '0')
end
return {1, receivers}
