-- rest_of: the rest of the lease of a lock that is held shared, in ms, as a waiter is to know it: that of the longest lease of
-- its holders. A lock whose holders have all ended is free: it is removed, and the answer is -2. In a crowd the TTL of the
-- hash has to do, which may be longer.

local function rest_of(lock, pttl)
  if redis.call('HLEN', lock) > 512 then
    return pttl
  end
  local most = longest(lock, redis.call('HGETALL', lock), nil, true)
  if most == 0 and not no_lock(lock, 'read') then
    redis.call('DEL', lock)
    return -2
  end
  return most > 0 and most or pttl
end
