-- drop_late: drop the first places of a free lock's queue whose deadline is over and whose channel has no subscriber.
--
-- The caller's own place stays: it is alive. A place without a deadline would block Redisson for ever, and gets one. One
-- that is late may be alive, because clocks jump: if its channel has a subscriber, the message wakes it, and it gets a new deadline.
-- Returns the first place then, or nil.

local function drop_late(publish, channel, queue, deadlines, lock, place, now, wait)
  local head = head_of(queue, lock)
  while head and head ~= place do
    local score = redis.pcall('ZSCORE', deadlines, head)
    if score and (tonumber(score) or now + 1) > now then
      break -- or the key of the deadlines holds something else
    end
    if not score or redis.call(publish, channel .. ':' .. head, '0') > 0 then
      redis.call('ZADD', deadlines, deadline(redis.call('LLEN', queue), now, wait), head)
      break
    end
    take_turn(queue, deadlines, head)
    head = head_of(queue, lock)
  end
  return head
end
