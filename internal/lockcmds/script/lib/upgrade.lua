-- upgrade: an owner that holds the lock shared acquires it exclusively. It is granted if the owner is the only holder.
--
-- Returns as deepen does; {0, -4, 0, 1, rest_ms}: there are other holders, and those that were looked at have that rest of their
-- leases; nil: the owner is none of them.

local function upgrade(lock, counter, owner, lease, request, field)
  local held = shared_hold(lock, owner, field)
  if held.err or not held[1] then
    return held.err and held or nil
  end
  if (tonumber(held[3] or 0) or 0) > tonumber(request) then
    return {1, 0, 0, 0, 0, 1}
  end
  local most, all = longest_seen(lock, name_of(lock, owner))
  if most > 0 or not all then
    return {0, -4, 0, 1, most > 0 and most or 100}
  end
  -- Not the whole key: while the hash slot is being moved, it could not be made again.
  local left = end_lease(lock, owner)
  local fence, replaced = grant(lock, counter, owner, lease, redis.call('TIME'), request, field)
  redis.call('HSET', lock, '{shared}', '#' .. held[2] .. ' ' .. held[1])
  for session, last in string.gmatch(held[5], '([^ =]+)=(%d+)') do
    redis.call('HSETNX', lock, '{' .. session .. '}', last)
  end
  lengthen(lock, left)
  return {1, fence, 1, replaced or 0, 0}
end
