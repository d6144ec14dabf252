-- next_turn: the first in the fair queue has left it without the lock. If the next one can have the lock, it has its turn.

local function next_turn(publish, channel, queue, lock)
  if redis.call('EXISTS', lock) == 0 then
    if not keep_for_first(publish, channel, queue, lock) then
      redis.call('DEL', channel)
    end
    return
  end
  local mode, head = redis.pcall('HGET', lock, 'mode'), head_of(queue, lock)
  if head and (mode == 'read' or type(mode) == 'table') then -- or the lock has permits
    redis.call(publish, channel .. ':' .. head, '0')
  end
end
