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
  local most = 0
  if redis.call('HLEN', lock) > 16 then
    most = longest(lock, redis.call('HSCAN', lock, 0, 'COUNT', 16)[2], owner)
  end
  if most == 0 then
    most = longest(lock, redis.call('HGETALL', lock), owner)
  end
  if most > 0 then
    return {0, -4, 0, 1, most}
  end
  local left = end_lease(lock, owner)
  -- Not the whole key: while the hash slot is being moved, it could not be made again.
  redis.call('HDEL', lock, '{' .. owner .. '}')
  local fence, replaced = grant(lock, counter, owner, lease, redis.call('TIME'), request, field)
  redis.call('HSET', lock, '{shared}', '#' .. held[2] .. ' ' .. held[1])
  for session, last in string.gmatch(held[5], '([^ =]+)=(%d+)') do
    redis.call('HSETNX', lock, '{' .. session .. '}', last)
  end
  lengthen(lock, left)
  return {1, fence, 1, replaced or 0, 0}
end
