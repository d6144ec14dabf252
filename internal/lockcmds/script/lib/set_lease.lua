-- set_lease: the lease of an owner that holds the lock shared is this long from now on. If it was the longest, the lock may
-- end earlier, and waiters are told. Of an owner that holds the lock both ways it is only made longer.

local function set_lease(publish, channel, queue, lock, owner, mode, lease)
  local left = mode == 'read' and redis.call('PTTL', timeout_of(lock, name_of(lock, owner))) or -1
  if left > tonumber(lease) then
    settle_shared(publish, channel, queue, lock, left, owner, lease)
  else
    lengthen_shared(lock, owner, mode, lease)
  end
end
