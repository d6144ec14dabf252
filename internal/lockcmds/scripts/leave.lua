-- leave.lua: a fair waiter gives up: take it out of the queue and close the gap in the deadlines behind it.
--
-- If it was the head of a free lock, the new head is woken: nobody else would do it. So is who waits for the same owner
-- elsewhere, and has lost its place. O(queue length).
--
-- KEYS[1]  queue      list of waiting owners, first to ask at the head
-- KEYS[2]  deadlines  zset owner -> epoch ms after which anybody may drop it
-- KEYS[3]  lock       hash {owner: holds, fence: n}; exists only while held
-- KEYS[4]  channel    base channel of the lock; a waiter listens on channel:owner
-- ARGV[1]  owner      who leaves
-- ARGV[2]  wait_ms    the wait it queued with
-- ARGV[3]  publish    PUBLISH or SPUBLISH
--
-- Returns  {removed}  1 if it was in the queue, else 0

local owner = ARGV[1]
local position = redis.call('LPOS', KEYS[1], owner)
redis.call('ZREM', KEYS[2], owner)
if not position then
  return {0}
end
local behind = redis.call('LRANGE', KEYS[1], position + 1, -1)
for _, waiter in ipairs(behind) do
  if waiter ~= owner then
    redis.call('ZADD', KEYS[2], 'XX', 'INCR', '-' .. ARGV[2], waiter)
  end
end
redis.call('LREM', KEYS[1], 0, owner)
redis.call(ARGV[3], KEYS[4] .. ':' .. owner, '0')
if position == 0 and behind[1] and redis.call('EXISTS', KEYS[3]) == 0 then
  redis.call(ARGV[3], KEYS[4] .. ':' .. behind[1], '0')
end
return {1}
