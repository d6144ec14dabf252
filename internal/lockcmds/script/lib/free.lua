-- free: free a lock, wake its waiters, and keep it for the first in the fair queue for a moment. If the user may not
-- publish, the lock stays, and the error says so.

local function free(publish, channel, queue, lock)
  redis.call(publish, channel, '0')
  tell_rwlock(publish, channel)
  keep_for_first(publish, channel, queue, lock)
  redis.call('DEL', lock)
end
