-- wake: tell plain waiters and, by name, the first in the fair queue that the lock may be had now, or earlier than they
-- were told.

local function wake(publish, channel, queue, lock)
  redis.call(publish, channel, '0')
  local head = head_of(queue, lock)
  if head then
    redis.call(publish, channel .. ':' .. head, '0')
  end
end
