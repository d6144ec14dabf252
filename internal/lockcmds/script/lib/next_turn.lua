-- next_turn: the first in the fair queue has left it without the lock. If the lock is free, the next one has its turn.

local function next_turn(publish, channel, queue, lock)
  if redis.call('EXISTS', lock) == 0 and not keep_for_first(publish, channel, queue, lock) then
    redis.call('DEL', channel)
  end
end
