-- leave_shared: the shared hold of an owner is over. If it was the last one, the lock is free.
--
-- A holder that has left only ever frees the lock. A large crowd is not counted: a few of it are looked at.

local function settle_shared(publish, channel, queue, lock)
  local head = head_of(queue, lock)
  if head and string.find(head, '{u}', 1, true) then -- it holds the lock shared, and waits for the others to leave
    redis.call(publish, channel .. ':' .. head, '0')
  end
  if redis.call('HLEN', lock) > 16 and sweep(lock) then
    return
  end
  local most = longest(lock, redis.call('HGETALL', lock))
  if most == 0 then
    free(publish, channel, queue, lock)
  elseif redis.call('PTTL', lock) > most then
    redis.call('PEXPIRE', lock, most) -- as Redisson does: the others' leases are shorter
    wake(publish, channel, queue, lock)
  end
end

local function leave_shared(publish, channel, queue, lock, owner, mode)
  if mode == 'lock' then -- the owner holds the lock exclusively, too
    redis.call('HDEL', lock, '{shared}')
    return
  end
  redis.call('DEL', timeout_of(lock, owner) .. '1')
  redis.call('HDEL', lock, owner, '{' .. owner .. '}')
  settle_shared(publish, channel, queue, lock)
end
