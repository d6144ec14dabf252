-- sweep_permits: it forgets some of our permits that Redisson's clients have removed, because their leases had ended. It
-- looks at a few dozen, from a place at random on.

local function sweep_permits(random)
  if redis.call('HLEN', permits) <= 2 * redis.call('ZCARD', timeouts) + 1 then
    return
  end
  local fields, gone = redis.call('HSCAN', permits, random, 'COUNT', 96)[2], {}
  for i = 1, #fields, 2 do
    if string.find(fields[i + 1], '^#%d') and #gone < 1000 and not redis.call('ZSCORE', timeouts, fields[i]) then
      gone[#gone + 1] = fields[i]
    end
  end
  if #gone > 0 then
    remove_permits(gone)
  end
end
