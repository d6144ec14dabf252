-- next_turn: the first in the fair queue has left it without the lock. The next one has its turn, or learns that it is the first.

local function next_turn(publish, channel, queue, lock)
  if redis.call('EXISTS', lock) == 0 then
    if not keep_for_first(publish, channel, queue, lock) then
      redis.call('DEL', channel)
    end
    return
  end
  local head = head_of(queue, lock)
  if head then
    redis.call(publish, channel .. ':' .. head, '0')
  end
end
