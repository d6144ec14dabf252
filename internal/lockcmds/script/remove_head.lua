-- remove_head.lua: remove the first place in a queue if it has no subscriber, or its waiter ignores the free lock.
--
-- A live waiter subscribes within seconds of queueing. The caller has seen it in the queue for that long.
-- The message that asks is also a wake-up, so a live one that missed its turn takes it now. O(log n) of the places.
--
-- KEYS[1]  lock       hash, see lib/hash.lua; exists only while held
-- KEYS[2]  queue      list of places of waiters, first to ask at the head
-- KEYS[3]  deadlines  zset place -> epoch ms after which it may be dropped
-- KEYS[4]  channel    base channel of the lock; a waiter listens on channel:place
-- ARGV[1]  place      of the waiter that is believed dead
-- ARGV[2]  publish    PUBLISH, or SPUBLISH in a cluster
-- ARGV[3]  force      1: remove it although it has a subscriber: it was woken often enough, and its turn is over
--
-- Returns  {1, receivers}  removed, and the next one woken
--          {0, receivers}  nothing done: not the first any more, or alive (receivers > 0); 0 if the lock is held

if head_of(KEYS[2], KEYS[1]) ~= ARGV[1] then
  return {0, 0}
end
local receivers = redis.call(ARGV[2], KEYS[4] .. ':' .. ARGV[1], '0')
if receivers > 0 and redis.call('EXISTS', KEYS[1]) == 1 then
  return {0, 0}
end
-- A waiter that listens and does not come may wait for the other lock of this queue ("{a}" beside "a"; see head_of).
if receivers > 0 and (ARGV[3] ~= '1' or redis.pcall('EXISTS', '{' .. KEYS[1] .. '}') == 1) then
  return {0, receivers}
end
take_turn(KEYS[2], KEYS[3], ARGV[1])
next_turn(ARGV[2], KEYS[4], KEYS[2], KEYS[1])
return {1, receivers}
