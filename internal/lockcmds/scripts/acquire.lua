-- acquire.lua: take a free lock, or deepen a hold its owner already has.
--
-- KEYS[1]  lock      hash {owner: holds, fence: n}; exists only while held
-- KEYS[2]  fence     counter of this hash slot; never expires, never goes back
-- ARGV[1]  owner     opaque, non-empty, not 'fence' or 'mode'
-- ARGV[2]  lease_ms  lease length, > 0
--
-- Returns  {1, fence, holds}  acquired
--          {0, pttl_ms}       held by another owner; -1: without a TTL

local pttl = redis.call('PTTL', KEYS[1])
local holds, fence = 1, nil
if pttl ~= -2 then
  local held = redis.pcall('HMGET', KEYS[1], ARGV[1], 'fence')
  if held.err then
    return held
  end
  if not held[1] then
    return {0, pttl}
  end
  holds = redis.call('HINCRBY', KEYS[1], ARGV[1], 1)
  fence = held[2] and tonumber(held[2])
end
if not fence then
  -- A grant, or a hold that was taken without a fence (by Redisson).
  local time = redis.call('TIME')
  fence = time[1] * 1000000 + time[2]
  local last = tonumber(redis.call('SET', KEYS[2], string.format('%.0f', fence), 'GET') or 0)
  if last and last >= fence then
    fence = last + 1
    redis.call('SET', KEYS[2], string.format('%.0f', fence))
  end
  redis.call('HSET', KEYS[1], ARGV[1], holds, 'fence', string.format('%.0f', fence))
end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return {1, fence, holds}
