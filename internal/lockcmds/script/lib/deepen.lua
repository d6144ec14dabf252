-- deepen: an owner that holds the lock acquires again.
--
-- The session writes how many holds it has then, if the grant is the one that it knows. What it finds of another grant is left
-- over from a call whose answer it did not use, or from a grant that it was told to have lost: the session begins anew with
-- one hold. The owner's only session gets a new grant then, in this step.
-- Returns {1, fence, holds, odd, place, mine}: as the calling script does, place 0, mine: the holds of the session;
-- nil: another owner has the lock; or Redis's error. older is set if a later call of the session was faster.

local function deepen(lock, counter, owner, lease, request, fence, holds, field)
  local held = hold_of(lock, owner, field)
  if held.err then
    return held
  end
  if not held[1] then
    return nil
  end
  local sum, old, new = tonumber(held[1]) or 0, held[2] and tonumber(held[2]), tonumber(request)
  if old and not (old >= 1 and old <= 9e15 and old % 1 == 0) then
    old = nil -- written by hand; see grant
  end
  if field == '' then
    local last = tonumber(held[3] or 0) or 0
    if last > new then
      return {1, old or 0, sum, 0, 0, sum, older = true}
    end
    if last == new and old then
      lengthen(lock, lease)
      return {1, old, sum, 0, 0, sum}
    end
    if held[2] ~= fence then
      local by, replaced = grant(lock, counter, owner, lease, redis.call('TIME'), request, field)
      return {1, by, 1, replaced or 0, 0, 1}
    end
    redis.call('HSET', lock, owner, holds, '{request}', request, 'mode', 'lock')
    redis.call('PEXPIRE', lock, lease)
    return {1, old, tonumber(holds), 0, 0, tonumber(holds)}
  end
  local n, last, taken = field_of(held[3])
  if last > new then
    return {1, old or 0, sum, 0, 0, n, older = true}
  end
  if last == new and old then
    lengthen(lock, lease)
    return {1, old, sum, 0, 0, n}
  end
  local before, ours, replaced = math.max(n - taken, 0), tonumber(held[4] or 0) or 0, nil
  if held[3] and held[2] == fence then
    n = tonumber(holds)
    taken = math.min(taken, n - 1)
  else
    n, taken = 1, 0
  end
  ours = ours + n - taken - before
  sum = math.max(sum + n - taken - before, ours)
  local mine = n .. ' ' .. request .. ' ' .. taken
  if old then
    redis.call('HSET', lock, owner, sum, '{ours}', ours, field, mine, 'mode', 'lock')
    redis.call('PEXPIRE', lock, lease)
  else -- taken without a fence, by Redisson, or the fence is none
    old, replaced = grant(lock, counter, owner, lease, redis.call('TIME'), request, field, sum, ours, mine)
  end
  return {1, old, sum, replaced or 0, 0, n}
end
