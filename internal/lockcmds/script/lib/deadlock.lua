-- deadlock: whether another shared holder waits to hold the lock alone, and so for this one to leave. Its place is one of the first.
--
-- A place without a subscriber is that of a waiter which has died, or is about to ask once more with a subscription: of two that have
-- taken their places at the same time, the one that asks last finds the other. The queue may have places of waiters for another
-- lock; see head_of.

local function deadlock(publish, channel, queue, lock, place)
  local braced = string.sub(place, -2) == '{}'
  for _, other in ipairs(redis.call('LRANGE', queue, 0, 3)) do
    local owner = other ~= place and (string.sub(other, -2) == '{}') == braced and string.match(other, '^(.+){u}')
    if owner and redis.call('EXISTS', timeout_of(lock, owner) .. '1') == 1 and redis.call(publish, channel .. ':' .. other, '0') > 0 then
      return true
    end
  end
  return false
end
