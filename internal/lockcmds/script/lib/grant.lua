-- grant: write a hold into the lock with a new fence, larger than every earlier one of this hash slot.
--
-- The fence is Redis's time in microseconds, or one more than the last: it also grows after FLUSHALL, a restart without
-- persistence, and the promotion of a stale replica whose clock is not behind. lease is in ms; time is what TIME returned. request is the number of the
-- call; field is the session's field, empty for the owner's only session. holds are the owner's then; absent: it is a first hold.
--
-- Every user of locks may write any value to the counter. What cannot have been a fence, because it is no whole number or
-- lies two centuries ahead of the clock, is replaced by the time. A fence that is less far ahead, as after a clock jumped
-- back, can never come to lie further ahead: grants are slower than one in a microsecond.
--
-- Returns the fence, and 1 if the counter was replaced, else nil.

local function grant(lock, counter, owner, lease, time, request, field, holds)
  local fence = time[1] * 1000000 + time[2]
  local text = time[1] .. string.sub('00000' .. time[2], -6) -- a quarter of the time of string.format
  local last, replaced = redis.pcall('SET', counter, text, 'GET'), nil
  if last then
    last = type(last) == 'string' and tonumber(last) or -1
    if not (last >= 0 and last < fence and last % 1 == 0) then
      if last >= fence and last <= math.min(fence + 6.3e15, 9e15) and last % 1 == 0 then
        fence = last + 1
        text = string.format('%.0f', fence)
      else
        replaced = 1
      end
      redis.call('SET', counter, text)
    end
  end
  redis.call('HSET', lock, owner, holds or '1', 'fence', text, field == '' and '{request}' or field, request, 'mode', 'lock')
  if type(redis.pcall('PEXPIRE', lock, lease)) == 'table' then -- the user may not, but it may SET: no lock stays without a TTL
    redis.call('SET', lock, '', 'PX', 1)
    redis.call('PEXPIRE', lock, lease) -- the error
  end
  return fence, replaced
end
