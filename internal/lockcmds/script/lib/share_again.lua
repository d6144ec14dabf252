-- share_again: an owner that holds the lock shared acquires it again. The rules are those of deepen.
--
-- Returns as the calling script does.

local function share_again(publish, channel, queue, lock, counter, owner, lease, request, field, fence, holds, held)
  local sum, by, last = tonumber(held[1] or 0), tonumber(held[2] or 0), request
  if field ~= '' and held[3] ~= request then
    sum, last = sum + 1, by_with(held[3], field)
  elseif field == '' then
    local before, new = tonumber(held[3] or 0) or 0, tonumber(request)
    if before > new then
      return {1, by, sum, 0, 0, 1}
    elseif before == new then
      lengthen_shared(lock, owner, lease)
      return {1, by, sum, 0, 0}
    elseif held[2] ~= fence then
      local new_fence, replaced = share(lock, counter, owner, lease, redis.call('TIME'), 'read', request)
      return {1, new_fence, 1, replaced or 0, 0}
    end
    sum = tonumber(holds)
  end
  set_lease(publish, channel, queue, lock, owner, lease)
  put_shared(lock, owner, held[2], sum, last)
  return {1, by, sum, 0, 0}
end
