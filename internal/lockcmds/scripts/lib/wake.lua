-- wake: tell plain waiters and, by name, the first in the fair queue that the lock may be had now, or earlier than they
-- were told.

local function wake(publish, channel, queue, lock)
  redis.call(publish, channel, '0')
  local head = head_of(queue, lock)
  if head then
    redis.call(publish, channel .. ':' .. head, '0')
  end
end

-- released: the answer when the lock was freed, a bare fence unless there is more to say.
local function released(fence)
  return no_queue and {1, fence, 1, no_queue} or fence
end
