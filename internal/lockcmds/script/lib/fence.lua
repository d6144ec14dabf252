-- fence: the next fence, larger than every earlier one of this hash slot. It stands within a function that has counter and time.
--
-- The fence is Redis's time in microseconds, or one more than the last: it also grows after FLUSHALL, a restart without
-- persistence, and the promotion of a stale replica whose clock is not behind. time is what TIME returned.
--
-- Every user of locks may write any value to the counter. What cannot have been a fence, because it is no whole number or
-- lies two centuries ahead of the clock, is replaced by the time. A fence that is less far ahead, as after a clock jumped
-- back, can never come to lie further ahead: grants are slower than one in a microsecond.
--
-- Sets fence, the same as text, and replaced: 1 if the counter was replaced, else nil.

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
