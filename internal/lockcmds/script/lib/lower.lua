-- lower: a session releases one hold.
--
-- The holds of a named owner are lowered by one. The owner's only session writes how many holds it has then. While
-- holds are left the lock stays, for lease ms at least; '0': its TTL stays. fence is the grant's; '0': any.
--
-- Returns the fence, 0 for a lock taken without one, when it was the last hold and is to end, and what hold_of has
-- returned; else nil and the script's answer.

local function lower(lock, owner, fence, holds, lease, field)
  local held = hold_of(lock, owner)
  if held.err then
    return nil, held
  end
  if not held[1] then
    return nil, {-1}
  end
  local by = tonumber(held[2] or 0) or 0
  if held[2] ~= fence and fence ~= '0' and by ~= tonumber(fence) then
    return nil, {-2, by}
  end
  local shared, left = held[4] == 'read', field == '' and tonumber(holds) or (tonumber(held[1]) or 0) - 1
  if left <= 0 then
    return by, held
  end
  if shared then
    put_shared(lock, owner, held[2], left, held[3])
  else
    redis.call('HSET', lock, owner, left)
  end
  if lease ~= '0' then
    if shared then
      lengthen_shared(lock, owner, lease)
    else
      lengthen(lock, lease)
    end
  end
  return nil, {0, left, by}
end
