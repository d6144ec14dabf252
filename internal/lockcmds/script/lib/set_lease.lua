-- set_lease: the lease of an owner that holds the lock shared is this long from now on. If it was the longest, the lock may
-- end earlier, and waiters are told.

local function set_lease(publish, channel, queue, lock, owner, lease)
  local left = redis.call('PTTL', timeout_of(lock, name_of(lock, owner)))
  if left > tonumber(lease) then
    settle_shared(publish, channel, queue, lock, left, owner, lease)
  else
    lengthen_shared(lock, owner, lease)
  end
end
