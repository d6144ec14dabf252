-- settle_shared: shared holds are over, or that of leaver is, or it lasts for rest ms from now on. If they were the last
-- ones, the lock is free. If the others' leases are shorter, it ends earlier.
--
-- left is the rest of the longest of their leases, in ms, as it was. Of a crowd only a few are looked at: then the lock
-- may last as long as the lease that is over. A waiter that asks looks again (see rest_of). A script sets both ends one
-- after the other, so that of the lock may be some ms later.
--
-- It reads the others' leases before it writes: while the hash slot is being moved, one of them may end the script.

local function settle_shared(publish, channel, queue, lock, left, leaver, rest)
  local name = leaver and name_of(lock, leaver)
  local most, all = nil, false
  if redis.call('HLEN', lock) > (leaver and 16 or 12) then
    local some = longest(lock, redis.call('HSCAN', lock, 0, 'COUNT', 16)[2], name)
    if some > 0 and (left + 10 < redis.call('PTTL', lock) or left <= 2 * some) then
      most = some
    end
  end
  if not most then
    most, all = longest_seen(lock, name)
  end
  if rest then
    most = math.max(most, tonumber(rest))
    redis.call('PEXPIRE', timeout_of(lock, name), rest)
  elseif leaver then
    end_lease(lock, leaver)
  end
  local pttl = redis.call('PTTL', lock)
  if all and most == 0 then
    free(publish, channel, queue, lock)
  elseif all and pttl > most then
    redis.call('PEXPIRE', lock, most) -- as Redisson does: the others' leases are shorter
    wake(publish, channel, queue, lock)
  elseif pttl < most then
    redis.call('PEXPIRE', lock, most)
  end
end

-- leave_shared: the shared hold of an owner is over.

local function leave_shared(publish, channel, queue, lock, owner)
  settle_shared(publish, channel, queue, lock, redis.call('PTTL', timeout_of(lock, name_of(lock, owner))), owner)
end
