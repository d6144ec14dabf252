-- share_again: an owner that holds the lock shared acquires it shared, and the acquire does not know that. The rules
-- are those of deepen.
--
-- Returns as the calling script does.

local function share_again(publish, channel, queue, lock, owner, lease, name, field, held)
  local sum = tonumber(held[1])
  if name == '' or held[3] == name then
    lengthen_shared(lock, owner, lease)
  else
    sum = sum + 1
    set_lease(publish, channel, queue, lock, owner, lease)
    put_shared(lock, owner, held[2], sum, by_with(held[3], field))
  end
  return {1, tonumber(held[2]), sum, 0, 0}
end
