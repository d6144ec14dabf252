-- holders_of: the holders of a lock.
--
-- Returns {owner, holds, fence, lease_ms} of each, fence 0: it was taken without one; none if the lock is free; and the
-- mode, nil: it has none; or Redis's error. The owner is empty if the hash has none: a client has changed it by hand. No
-- client can acquire the lock then. An owner that holds it both ways is there twice, the exclusive hold first.

local function holders_of(lock)
  local fields = redis.pcall('HGETALL', lock)
  if fields.err or #fields == 0 then
    return fields
  end
  local value, owners = {}, {}
  for i = 1, #fields, 2 do
    local name = fields[i]
    value[name] = fields[i + 1]
    if name ~= 'fence' and name ~= 'mode' and string.sub(name, 1, 1) ~= '{' then
      owners[#owners + 1] = name
    end
  end
  local mode, pttl, all = value.mode, redis.call('PTTL', lock), {}
  if mode == 'read' then
    for _, owner in ipairs(owners) do
      local left, timeout = -2, timeout_of(lock, owner)
      for n = 1, math.min(tonumber(value[owner]) or 0, 64) do
        left = math.max(left, redis.call('PTTL', timeout .. n))
      end
      if left > 0 then
        local fence = string.match(value['{' .. owner .. '}'] or '', '^#(%d+)')
        all[#all + 1] = {owner, tonumber(value[owner]), tonumber(fence) or 0, left}
      end
    end
    return all, mode
  end
  local fence = tonumber(value.fence)
  if not (fence and fence >= 1 and fence <= 9e15 and fence % 1 == 0) then
    fence = 0 -- it cannot have been a fence
  end
  local owner = owners[1] or ''
  all[1] = {owner, tonumber(value[owner]) or 0, fence, pttl}
  local shared, holds = string.match(value['{shared}'] or '', '^#(%d+) (%d+)$')
  if shared then
    all[2] = {owner, tonumber(holds), tonumber(shared), pttl}
  end
  return all, mode
end
