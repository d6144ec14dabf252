-- holder: the holder of a lock.
--
-- Returns {owner, holds, fence}, fence 0: it was taken without one; {} if the lock is free; or Redis's error. The owner is empty
-- if the hash has none: a client has changed it by hand. No client can acquire the lock then.

local function holder(lock)
  local fields = redis.pcall('HGETALL', lock)
  if fields.err then
    return fields
  end
  if #fields == 0 then
    return {}
  end
  local owner, holds, fence = nil, 0, 0
  for i = 1, #fields, 2 do
    if fields[i] == 'fence' then
      fence = tonumber(fields[i + 1])
    elseif fields[i] ~= 'mode' and string.sub(fields[i], 1, 1) ~= '{' and not owner then
      owner, holds = fields[i], tonumber(fields[i + 1])
    end
  end
  if not (fence and fence >= 1 and fence <= 9e15 and fence % 1 == 0) then
    fence = 0 -- it cannot have been a fence
  end
  return {owner or '', holds or 0, fence}
end
