-- settle_shared: shared holds are over, or that of leaver is. If they were the last ones, the lock is free.
--
-- left is the rest of the longest of their leases, in ms. Of a crowd only a few are looked at, unless the lock lasts as
-- long as the hold that is over, and the few end much earlier. A waiter that asks looks at all of them (see rest_of). A
-- script sets both ends one after the other, so that of the lock may be some ms later.
--
-- It reads the others' leases before it writes: while the hash slot is being moved, one of them may end the script.

local function settle_shared(publish, channel, queue, lock, left, leaver)
  local crowd, most = redis.call('HLEN', lock) > (leaver and 10 or 8), nil
  if crowd then
    local some = longest(lock, redis.call('HSCAN', lock, 0, 'COUNT', 16)[2], leaver)
    crowd = some > 0 and (left + 10 < redis.call('PTTL', lock) or left <= 2 * some)
  end
  if not crowd then
    most = longest(lock, redis.call('HGETALL', lock), leaver)
  end
  if leaver then
    end_lease(lock, leaver)
    redis.call('HDEL', lock, leaver, '{' .. leaver .. '}')
  end
  local head = head_of(queue, lock)
  local first = head and string.gsub(head, '{.*', '') -- without marks: no owner's name has braces
  if head and redis.call('HEXISTS', lock, '{' .. first .. '}') == 1 then -- it holds the lock shared, and waits for the others to leave
    redis.call(publish, channel .. ':' .. head, '0')
  end
  if most == 0 then
    free(publish, channel, queue, lock)
  elseif most and redis.call('PTTL', lock) > most then
    redis.call('PEXPIRE', lock, most) -- as Redisson does: the others' leases are shorter
    wake(publish, channel, queue, lock)
  end
end

-- leave_shared: the shared hold of an owner is over.

local function leave_shared(publish, channel, queue, lock, owner, mode, field, request)
  if mode == 'lock' then -- the owner holds the lock exclusively, too, and a copy of an earlier call may come
    if request then
      redis.call('HSET', lock, field == '' and '{request}' or field, request)
    end
    redis.call('HDEL', lock, '{shared}')
    return
  end
  settle_shared(publish, channel, queue, lock, redis.call('PTTL', timeout_of(lock, owner) .. '1'), owner)
end
