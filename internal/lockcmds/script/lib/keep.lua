-- keep_for_first: keep a lock that is free for the first in the fair queue for a moment, and wake that waiter.
--
-- Returns whether it is kept.

local function keep_for_first(publish, channel, queue, lock)
  local head = head_of(queue, lock)
  if not head then
    return false
  end
  local listeners = redis.call(publish, channel .. ':' .. head, '0')
  if listeners == 0 and string.sub(head, 37, 43) ~= ':plain-' then
    return false -- it is not kept for the dead; but plain waiters have a place before they are subscribed by its name
  end
  redis.call('SET', channel, head, 'PX', 250) -- see kept_for
  return true
end
