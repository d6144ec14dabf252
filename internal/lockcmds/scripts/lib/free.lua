-- free: free a lock, keep it for the first in the fair queue for a moment, and wake those who wait.

local function keep_for_first(publish, channel, queue, lock)
  local head = head_of(queue, lock)
  if head then
    redis.call('SET', channel, head, 'PX', 250) -- see kept_for
    redis.call(publish, channel .. ':' .. head, '0')
  end
  return head
end

local function free(publish, channel, queue, lock)
  redis.call('DEL', lock)
  redis.call(publish, channel, '0')
  keep_for_first(publish, channel, queue, lock)
end

-- next_turn: the first in the fair queue has left it without the lock. If that is free, it is the turn of the next one.
local function next_turn(publish, channel, queue, lock)
  if redis.call('EXISTS', lock) == 0 and not keep_for_first(publish, channel, queue, lock) then
    redis.call('DEL', channel)
  end
end
