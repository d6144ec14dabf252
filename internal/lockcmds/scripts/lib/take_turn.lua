-- take_turn: the head of the fair queue takes its turn and leaves the queue. O(log n) of the places.
--
-- The deadlines of the others stay as they are: none was computed from the head's (see fair.lua).

local function take_turn(queue, deadlines, head)
  redis.call('LPOP', queue)
  redis.call('ZREM', deadlines, head)
end
