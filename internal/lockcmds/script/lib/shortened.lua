-- shortened: an owner that holds a lock has acquired it again. If its lease ends earlier now than waiters were told, they are woken.
--
-- left is the rest of the lease before, in ms; -1: it had no end.

local function shortened(publish, channel, queue, lock, left)
  local now = redis.call('PTTL', lock)
  if now >= 0 and (left < 0 or now < left) then
    wake(publish, channel, queue, lock)
  end
end
