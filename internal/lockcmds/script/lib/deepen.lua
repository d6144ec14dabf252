-- deepen: an owner that holds the lock exclusively acquires it, whose acquire does not know that.
--
-- An acquire that has been granted before is known by the name of its owner, which has no other, or for a named owner by
-- its own name. It sets its lease anew, but not to an earlier end: a late copy of it may come behind an EXTENDLOCK. Any
-- other acquire of a named owner raises the holds by one. Returns {1, fence, holds, odd, place} as the calling script
-- does, place 0; {0, -4}: it holds the lock shared; or Redis's error; nil and the mode: it does not hold the lock.

local function deepen(lock, counter, owner, lease, name, field)
  local held = hold_of(lock, owner)
  if held.err then
    return held
  elseif not held[1] then
    return nil, held[4]
  elseif held[4] == 'read' then
    return {0, -4}
  end
  local sum, by, fence, replaced = tonumber(held[1]) or 0, name, held[2] and tonumber(held[2]), nil
  local again = name == '' or held[3] == name
  if not again then
    sum, by = sum + 1, by_with(held[3], field)
  end
  if fence and fence >= 1 and fence <= 9e15 and fence % 1 == 0 then
    if again then
      lengthen(lock, lease)
    else
      redis.call('HSET', lock, owner, sum, '{by}', by, 'mode', 'lock')
      redis.call('PEXPIRE', lock, lease)
    end
  else -- it was taken without a fence, by Redisson, or the fence was written by hand
    fence, replaced = grant(lock, counter, owner, lease, redis.call('TIME'), by, sum)
  end
  return {1, fence, sum, replaced or 0, 0}
end
