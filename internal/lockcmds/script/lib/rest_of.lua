-- rest_of: the rest of the lease of a lock that is held shared, in ms, as a waiter is to know it: that of the longest lease of
-- its holders. A lock whose holders have all ended is free: it is removed, and the answer is -2. In a crowd it is that of
-- some holders, so the waiter asks again when these have ended.

local function rest_of(lock, pttl)
  local most, all = longest_seen(lock, nil, true)
  if most == 0 and all and not no_lock(lock, 'read') then
    redis.call('DEL', lock)
    return -2
  end
  return most > 0 and most or all and pttl or math.min(pttl, 100)
end
