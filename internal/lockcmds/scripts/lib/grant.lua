-- grant: write a hold into the lock with a new fence, larger than every earlier one of this hash slot.
--
-- The fence is Redis's time in microseconds, or one more than the last: it also grows after FLUSHALL, a restart without
-- persistence, and the promotion of a stale replica. lease is in ms; time is what TIME returned. Returns the fence.

local function grant(lock, counter, owner, holds, lease, time)
  local fence = time[1] * 1000000 + time[2]
  local text = string.format('%.0f', fence)
  local last = tonumber(redis.call('SET', counter, text, 'GET') or 0)
  if last and last >= fence then
    fence = last + 1
    text = string.format('%.0f', fence)
    redis.call('SET', counter, text)
  end
  redis.call('HSET', lock, owner, holds, 'fence', text)
  redis.call('PEXPIRE', lock, lease)
  return fence
end
