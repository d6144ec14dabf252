-- permit_holders: the holders of a lock with permits: {owner, 1, fence, lease_ms, note, permit} of each, as holders_of
-- returns them, fence 0: it is Redisson's, and its owner is in hexadecimal digits, as Redisson prints it; and how many
-- there may be. wanted is the only fence of interest; nil: all are. Of more than most it is those that last longest;
-- most nil: all. If the key is something else, it returns Redis's error.

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
