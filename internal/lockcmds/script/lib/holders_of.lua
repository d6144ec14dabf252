-- holders_of: the holders of a lock.
--
-- Returns {owner, holds, fence, lease_ms, note} of each, fence 0: it was taken without one; note: "#text", or not; none if the
-- lock is free; and the mode, nil: it has none; or Redis's error. The owner is empty if the hash has none: a client has changed it by hand. No
-- client can acquire the lock then.
--
-- Of a lock that is held shared, wanted names the only owner of interest, and fence the only grant; nil: any; fence -1: any.
-- Of a crowd of more than most it is about as many; nil: all.

local function holders_of(lock, wanted, fence, most)
  local fields = {}
  local by = fence and tonumber(fence) > 0
  if (wanted or by) and redis.pcall('HGET', lock, 'mode') == 'read' then -- a crowd need not be read
    local name = wanted and name_of(lock, wanted) or string.sub(redis.call('HGET', lock, '{}' .. fence) or '', 2)
    local held = redis.call('HMGET', lock, name, '{' .. name .. '}')
    if held[1] then
      fields = {'mode', 'read', name, held[1], '{' .. name .. '}', held[2] or ''}
    end
    if not held[2] and no_lock(lock, 'read') then
      fields = redis.pcall('GET', lock) -- WRONGTYPE
    end
  elseif most and (tonumber(redis.pcall('HLEN', lock)) or 0) > 3 * most + 3 then -- each has three fields
    fields = redis.call('HSCAN', lock, 0, 'COUNT', 3 * most)[2]
    table.insert(fields, 'mode')
    table.insert(fields, redis.call('HGET', lock, 'mode') or '')
  else
    fields = redis.pcall('HGETALL', lock)
  end
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
  local wrong = not (value.fence and value.mode == 'lock') and no_lock(lock, value.mode)
  if wrong then
    return wrong
  end
  local mode, pttl, all = value.mode, redis.call('PTTL', lock), {}
  if mode == 'read' then
    for _, name in ipairs(owners) do
      local record = value['{' .. name .. '}'] or most and redis.call('HGET', lock, '{' .. name .. '}') or ''
      local holds, by = tonumber(value[name]) or 0, string.match(record, '^#(%d+)') or '0'
      local left = (not fence or fence == '-1' or by == fence) and lease_of(lock, name, holds) or 0
      if left > 0 then
        all[#all + 1] = {owner_of(name), holds, tonumber(by), left, by ~= '0' and redis.call('GET', timeout_of(lock, name))}
      end
    end
    return all, mode
  end
  local by = tonumber(value.fence)
  if not (by and by >= 1 and by <= 9e15 and by % 1 == 0) then
    by = 0 -- it cannot have been a fence
  end
  local owner = owners[1] or ''
  all[1] = {owner, tonumber(value[owner]) or 0, by, pttl, value['{note}']}
  return all, mode
end
