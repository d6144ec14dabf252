-- take_turn: the first in the fair queue takes its turn and leaves the queue. O(log n) of the places.
--
-- The deadlines of the others stay as they are: none was computed from another (see deadline).

local function take_turn(queue, deadlines, place)
  redis.call('LREM', queue, '1', place)
  redis.pcall('ZREM', deadlines, place) -- a key of another type has no deadline to remove
end
