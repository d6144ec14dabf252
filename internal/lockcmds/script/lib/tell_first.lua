-- tell_first: the first place has left the queue with the lock. The next one is told by its name that it is the first now, and the
-- lease in ms. Redisson's waiters do not heed a number larger than 1.

local function tell_first(publish, channel, queue, lock, lease)
  local head = head_of(queue, lock)
  if head then
    redis.call(publish, channel .. ':' .. head, lease)
  end
end
