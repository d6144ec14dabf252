-- share_again: an owner that holds the lock shared acquires it again. The rules are those of deepen.
--
-- Returns as the calling script does.

local function share_again(publish, channel, queue, lock, counter, owner, lease, request, field, fence, holds, held)
  local sum, last, new = tonumber(held[1] or 0), tonumber(held[3] or 0) or 0, tonumber(request)
  if last > new then
    return {1, tonumber(held[2] or 0), sum, 0, 0, 1}
  end
  if last == new then
    lengthen_shared(lock, owner, lease)
    return {1, tonumber(held[2]), sum, 0, 0}
  end
  if field ~= '' or held[2] == fence then
    sum = field ~= '' and sum + 1 or tonumber(holds)
    set_lease(publish, channel, queue, lock, owner, lease)
    put_shared(lock, owner, held, sum, field, request)
    return {1, tonumber(held[2]), sum, 0, 0}
  end
  local new_fence, replaced = share(lock, counter, owner, lease, redis.call('TIME'), held, field, request)
  return {1, new_fence, 1, replaced or 0, 0}
end
