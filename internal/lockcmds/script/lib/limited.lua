-- limited: how long a lock stays held whose permits others have, in ms; -1: without an end; -2: the last one had ended,
-- and the lock is free now. nil: it has no permits, and the key holds something else. The second result is that of in_form.

local function limited(lock)
  if not left_of(lock) then
    return nil
  end
  local timeouts, permits, owners = permits_of(lock)
  local last, ours = redis.pcall('ZRANGE', timeouts, -1, -1, 'WITHSCORES'), is_ours(lock, permits)
  if last.err and string.find(last.err, 'non local', 1, true) then
    return 100 -- it has moved to another server of the cluster, and the lock has not yet
  end
  local longest = last[2]
  local rest = longest and rest_until(longest, milliseconds(redis.call('TIME'))) or 0
  if rest == 0 and not ours then
    return nil -- a number without permits is another program's, or a semaphore of Redisson's
  end
  if rest == 0 then
    redis.call('DEL', lock, permits, timeouts, owners)
    return -2
  end
  return rest, in_form(timeouts, permits, ours)
end
