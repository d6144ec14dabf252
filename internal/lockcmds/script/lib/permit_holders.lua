-- permit_holders: the permits of a lock. Returns {owner, 1, fence, lease_ms, note, permit} of each, as holders_of does,
-- fence 0: it is Redisson's, and its owner is in hexadecimal digits, as Redisson prints it; and how many there may be.
-- nil: the key holds something else. owner and fence name the only permit of interest; fence nil: all are. Of more than
-- most it is those that last longest; most nil: all.

local function note_of(permits, fence)
  return string.match(redis.call('HGET', permits, fence) or '', '{(.*)$')
end

local function permit_holders(lock, owner, fence, most)
  local left, now = left_of(lock), milliseconds(redis.call('TIME'))
  local timeouts, permits = permits_of(lock)
  if left and fence then
    local permit, score = permit_with(timeouts, permits, owner, fence, now)
    return permit and {{owner, 1, tonumber(fence), rest_until(score, now), note_of(permits, fence), permit}} or {}, 0
  end
  local all = redis.pcall('ZRANGE', timeouts, most and -most or 0, -1, 'WITHSCORES')
  if not left or all.err then
    return nil
  end
  local held = {}
  for from = 1, #all, 2000 do
    local some = {}
    for i = from, math.min(from + 1998, #all), 2 do
      some[#some + 1] = all[i]
    end
    for i, record in ipairs(redis.call('HMGET', permits, unpack(some))) do
      local permit, rest = some[i], rest_until(all[from + 2 * i - 1], now)
      local by = record and string.match(record, '^#(%d+)')
      if rest ~= 0 then
        local of = by and string.match(permit, '^(.*)#')
        of = of or string.gsub(permit, '.', function(c) return string.format('%02x', string.byte(c)) end)
        held[#held + 1] = {of, 1, tonumber(by or 0), rest, by and note_of(permits, by) or nil, permit}
      end
    end
  end
  if #held == 0 and not is_ours(lock, permits) then
    return nil
  end
  return held, left + held_permits(timeouts, now)
end
