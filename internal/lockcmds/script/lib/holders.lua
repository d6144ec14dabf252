-- holders: who holds a lock.

-- holders_of returns {owner, holds, fence, rest of the lease, note} of each holder of a lock, and the mode; or Redis's
-- error. Fence 0: it was taken without one. Note: "#text", or nothing. The owner is empty if the hash has none: a
-- client has changed it by hand, and no client can acquire the lock then.
--
-- Of a lock that is held shared, wanted names the only owner of interest, and fence the only grant; nil: any; fence -1:
-- any. Of a crowd of more than most it is about as many; nil: all.
local function holders_of(wanted, fence, most)
  local fields = {}
  local by = fence and tonumber(fence) > 0
  if (wanted or by) and redis.pcall('HGET', lock, 'mode') == 'read' then -- a crowd need not be read
    local name = wanted and name_of(wanted) or string.sub(redis.call('HGET', lock, '{}' .. fence) or '', 2)
    local held = redis.call('HMGET', lock, name, '{' .. name .. '}')
    if held[1] then
      fields = {'mode', 'read', name, held[1], '{' .. name .. '}', held[2] or ''}
    end
    if not held[2] and no_lock('read') then
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
  local value, names = {}, {}
  for i = 1, #fields, 2 do
    local name = fields[i]
    value[name] = fields[i + 1]
    if name ~= 'fence' and name ~= 'mode' and string.sub(name, 1, 1) ~= '{' then
      names[#names + 1] = name
    end
  end
  local wrong = not (value.fence and value.mode == 'lock') and no_lock(value.mode)
  if wrong then
    return wrong
  end
  local mode, pttl, all = value.mode, redis.call('PTTL', lock), {}
  if mode == 'read' then
    for _, name in ipairs(names) do
      local record = value['{' .. name .. '}'] or most and redis.call('HGET', lock, '{' .. name .. '}') or ''
      local holds, by = tonumber(value[name]) or 0, string.match(record, '^#(%d+)') or '0'
      local left = (not fence or fence == '-1' or by == fence) and lease_of(name, holds) or 0
      if left > 0 then
        all[#all + 1] = {owner_of(name), holds, tonumber(by), left, by ~= '0' and redis.call('GET', timeout_of(name))}
      end
    end
    return all, mode
  end
  local by = tonumber(value.fence)
  if not (by and by >= 1 and by <= 9e15 and by % 1 == 0) then
    by = 0 -- it cannot have been a fence
  end
  local owner = names[1] or ''
  all[1] = {owner, tonumber(value[owner]) or 0, by, pttl, value['{note}']}
  return all, mode
end

-- permit_holders returns {owner, 1, fence, rest of the lease, note, permit} of each holder of a permit, and how many
-- there may be; or Redis's error. Fence 0: it is Redisson's, and its owner is in hexadecimal digits, as Redisson prints
-- it. wanted is the only fence of interest; nil: all are. Of more than most it is those that last longest; nil: all.
local function permit_holders(wanted, most)
  local left, now = left_of(), milliseconds(redis.call('TIME'))
  if type(left) ~= 'string' then
    return left or {}, 0
  end
  local all = {}
  if wanted then
    local permit, _, ends = permit_with(wanted, now)
    all = {permit, ends}
  else
    all = redis.call('ZRANGE', timeouts, most and -most or 0, -1, 'WITHSCORES')
  end
  local held = {}
  for from = 1, #all, 2000 do
    local some = {}
    for i = from, math.min(from + 1998, #all), 2 do
      some[#some + 1] = all[i]
    end
    for i, record in ipairs(redis.call('HMGET', permits, unpack(some))) do
      local permit, ends = some[i], all[from + 2 * i - 1]
      local fence = record and string.match(record, '^#(%d+)')
      local note = fence and string.match(redis.call('HGET', permits, fence) or '', '{(.*)$')
      local owner = fence and owner_of_permit(permit) or
        string.gsub(permit, '.', function(c) return string.format('%02x', string.byte(c)) end)
      if tonumber(ends) >= now then
        held[#held + 1] = {owner, 1, tonumber(fence or 0), rest_until(ends, now), note, permit}
      end
    end
  end
  return held, left + held_permits(now)
end
