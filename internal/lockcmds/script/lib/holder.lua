-- holder: who holds a lock.
--
-- Returns {owner, holds, fence}, fence 0: it was taken without one; {} if the lock is free; or Redis's error.

local function holder(lock)
  local fields = redis.pcall('HGETALL', lock)
  if fields.err then
    return fields
  end
  local owner, holds, fence = nil, 0, 0
  for i = 1, #fields, 2 do
    if fields[i] == 'fence' then
      fence = tonumber(fields[i + 1])
    elseif fields[i] ~= 'mode' and string.sub(fields[i], 1, 1) ~= '{' and not owner then
      owner, holds = fields[i], tonumber(fields[i + 1])
    end
  end
  if not owner then
    return {}
  end
  return {owner, holds or 0, fence or 0}
end
