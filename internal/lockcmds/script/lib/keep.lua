-- keep_for_first: keep a lock that is free for the first in the fair queue that listens, for a moment, and wake that waiter. A waiter
-- that does not listen yet asks when it does.
--
-- Returns whether it is kept.

local function keep_for_first(publish, channel, queue, lock)
  local head = head_of(queue, lock)
  if not head then
    return false
  end
  if redis.call(publish, channel .. ':' .. head, '0') == 0 then
    local others, dead = redis.call('LRANGE', queue, '0', '15'), head
    head = nil
    for _, place in ipairs(others) do
      if place ~= dead and waits_for(place, lock) and redis.call(publish, channel .. ':' .. place, '0') > 0 then
        head = place
        break
      end
    end
  end
  if head then
    redis.call('SET', channel, head, 'PX', 250) -- see kept_for
  end
  return head ~= nil
end
