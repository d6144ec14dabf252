-- wake: tell plain waiters and, by name, the fair head that the lock may be had now, or earlier than they were told.

local function wake(publish, channel, queue)
  redis.call(publish, channel, '0')
  local head = redis.call('LINDEX', queue, 0)
  if head then
    redis.call(publish, channel .. ':' .. head, '0')
  end
end
