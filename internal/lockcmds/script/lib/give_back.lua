-- give_back: the owner gives back one hold of its grant.
--
-- While holds are left the lock stays, for lease ms at least; '0': its TTL stays. fence is the grant's; '0': any.
-- Returns the fence, 0 for a lock taken without one, when it was the last hold and the lock is to be freed; else nil and
-- the script's answer.

local function give_back(lock, owner, lease, fence)
  local held = redis.pcall('HMGET', lock, owner, 'fence')
  if held.err then
    return nil, held
  end
  if not held[1] then
    return nil, {-1}
  end
  local by = tonumber(held[2] or 0) or 0
  if fence ~= '0' and by ~= tonumber(fence) then
    return nil, {-2, by}
  end
  if tonumber(held[1]) <= 1 then
    return by
  end
  local holds = redis.call('HINCRBY', lock, owner, -1)
  if lease ~= '0' and redis.call('PTTL', lock) < tonumber(lease) then
    redis.call('PEXPIRE', lock, lease)
  end
  return nil, {0, holds, by}
end
