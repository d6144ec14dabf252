-- remove_head.lua: remove the first place in a queue if it has no subscriber, or its waiter ignores the free lock.
--
-- A live waiter subscribes within seconds of queueing. The caller has seen it in the queue for that long.
-- The message that asks is also a wake-up, so a live one that missed its turn takes it now. O(log n) of the places.
--
-- Returns  {1, receivers}  removed, and the next one woken
--          {0, receivers}  nothing done: not the first any more, or alive (receivers > 0); 0 if the lock is held

local lock, queue, deadlines, channel = unpack(KEYS)
local place, publish, force = unpack(ARGV)

if head_of(queue, lock) ~= place then
  return {0, 0}
end
local receivers = redis.call(publish, channel .. ':' .. place, '0')
if receivers > 0 and redis.call('EXISTS', lock) == 1 then
  return {0, 0}
end
-- A waiter that listens and does not come may wait for the other lock of this queue ("{a}" beside "a"; see head_of).
if receivers > 0 and (force ~= '1' or redis.pcall('EXISTS', '{' .. lock .. '}') == 1) then
  return {0, receivers}
end
take_turn(queue, deadlines, place)
next_turn(publish, channel, queue, lock)
return {1, receivers}
