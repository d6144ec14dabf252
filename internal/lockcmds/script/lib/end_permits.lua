-- end_permits: these permits, which are held, are over. With the last one of all a lock of ours is free. If the user may
-- not publish, they stay, and the error says so. Returns whether the lock is free, and others wait.

local function end_permits(publish, channel, queue, list, now)
  local ours = is_ours()
  if ours and #list == held_permits(now) then
    free(publish, channel, queue, lock)
    redis.call('DEL', timeouts, permits, owners)
    return head_of(queue, lock) ~= nil
  end
  wake(publish, channel, queue, lock)
  local n = 0
  for from = 1, #list, 1000 do
    n = n + remove_permits({unpack(list, from, math.min(from + 999, #list))})
  end
  leave_more(publish, channel, n)
  if ours then
    keep(ours)
  end
  return false
end
