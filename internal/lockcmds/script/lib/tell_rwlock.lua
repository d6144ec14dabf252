-- tell_rwlock: tell Redisson's read and write locks that they may ask. A user without the right to their channel frees the
-- lock all the same.
--
-- 1 wakes all that wait, and 0 one that is about to.

local function tell_rwlock(publish, channel)
  local theirs = 'redisson_rwlock' .. string.sub(channel, 23) -- behind redisson_lock__channel
  redis.pcall(publish, theirs, '1')
  redis.pcall(publish, theirs, '0')
end
