-- next_turn: the first in the fair queue has left it without the lock. If that is free, it is the turn of the next one.

local function next_turn(publish, channel, queue, lock)
  if redis.call('EXISTS', lock) == 0 and not keep_for_first(publish, channel, queue, lock) then
    redis.call('DEL', channel)
  end
end
