-- deepen: an owner that holds the lock exclusively acquires again.
--
-- The holds of a named owner are raised by one, unless this acquire has been granted before. The owner's only session
-- writes how many holds it has then, if the grant is the one that it knows. Another grant is left over from a call
-- whose answer it did not use, or it was told to have lost that grant: the session begins anew with one hold, and gets
-- a new grant in this step. Returns {1, fence, holds, odd, place} as the calling script does, place 0; {…, 1}: a later
-- call of the session was faster, so this one may not have been executed; {0, -4}: it holds the lock shared; or Redis's
-- error; nil and the mode: it does not hold the lock.

local function deepen(lock, counter, owner, lease, request, fence, holds, field)
  local held = hold_of(lock, owner, field)
  if held.err then
    return held
  end
  if not held[1] then
    return nil, held[4]
  elseif held[4] == 'read' then
    if field == '' and held[2] ~= fence then
      return nil, 'read' -- a grant that the session does not use: it will end
    end
    return {0, -4}
  end
  local sum, old, replaced, last = tonumber(held[1]) or 0, held[2] and tonumber(held[2]), nil, request
  if old and not (old >= 1 and old <= 9e15 and old % 1 == 0) then
    old = nil -- written by hand; see grant
  end
  if field ~= '' and held[3] ~= request then
    sum, last = sum + 1, by_with(held[3], field)
  elseif field == '' then
    local before, new = tonumber(held[3] or 0) or 0, tonumber(request)
    if before > new then
      return {1, old or 0, sum, 0, 0, 1}
    elseif before == new and old then
      lengthen(lock, lease)
      return {1, old, sum, 0, 0}
    elseif held[2] == fence then
      sum = tonumber(holds)
    else
      sum, old = 1, nil
    end
  end
  if old then
    redis.call('HSET', lock, owner, sum, field == '' and '{request}' or '{by}', last, 'mode', 'lock')
    redis.call('PEXPIRE', lock, lease)
  else -- or taken without a fence, by Redisson, or the fence is none
    old, replaced = grant(lock, counter, owner, lease, redis.call('TIME'), last, field, sum)
  end
  return {1, old, sum, replaced or 0, 0}
end
