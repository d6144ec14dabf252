-- sweep_permits: it forgets our permits that Redisson's clients have removed, because their leases had ended.

local function sweep_permits(timeouts, permits)
  if redis.call('HLEN', permits) <= 2 * redis.call('ZCARD', timeouts) + 1 then
    return
  end
  local fields, gone = redis.call('HGETALL', permits), {}
  for i = 1, #fields, 2 do
    local by = string.match(fields[i + 1], '^#(%d+)')
    if by and not redis.call('ZSCORE', timeouts, fields[i]) then
      gone[#gone + 1] = fields[i]
      gone[#gone + 1] = by
    end
  end
  for from = 1, #gone, 1000 do
    redis.call('HDEL', permits, unpack(gone, from, math.min(from + 999, #gone)))
  end
end
