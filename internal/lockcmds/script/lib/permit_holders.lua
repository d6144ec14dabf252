-- permit_holders: the permits of a lock. Returns {owner, 1, fence, lease_ms, note, permit} of each, as holders_of does,
-- fence 0: it is Redisson's, and its owner is in hexadecimal digits, as Redisson prints it; and how many there may be.
-- nil: the key holds something else.

local function permit_holders(lock)
  local left = left_of(lock)
  local timeouts, permits = permits_of(lock)
  local all = redis.pcall('ZRANGE', timeouts, 0, -1, 'WITHSCORES')
  if not left or all.err then
    return nil
  end
  local held, fences, notes, fields, now = {}, {}, {}, redis.call('HGETALL', permits), milliseconds(redis.call('TIME'))
  for i = 1, #fields, 2 do
    fences[fields[i]] = string.match(fields[i + 1], '^#(%d+)')
    notes[fields[i]] = string.match(fields[i + 1], '{(.*)$')
  end
  for i = 1, #all, 2 do
    local permit, rest = all[i], rest_until(all[i + 1], now)
    local owner = fences[permit] and string.match(permit, '^(.*)#')
    if rest ~= 0 then
      owner = owner or string.gsub(permit, '.', function(c) return string.format('%02x', string.byte(c)) end)
      held[#held + 1] = {owner, 1, tonumber(fences[permit] or 0), rest, notes[fences[permit]], permit}
    end
  end
  if #held == 0 and not is_ours(lock, permits) then
    return nil
  end
  return held, left + #held
end
