-- crowd: the place that the plain waiters of a proxy share in the fair queue (see package turns).
--
-- Each returns where the place is then: 0 not in the queue, 1 at its head, 2 behind others.

local function crowd_joins(queue, deadlines, lock, place, wait)
  local listed, timed = redis.pcall('LLEN', queue), redis.pcall('ZCARD', deadlines)
  if type(listed) == 'table' or type(timed) == 'table' then
    return 0 -- not a queue, but something else: plain waiters can do without
  end
  local time = redis.call('TIME')
  local now = time[1] * 1000 + math.floor(time[2] / 1000)
  --@ mend
  local places = mend(queue, deadlines, listed, timed, now, wait)
  local score = redis.call('ZSCORE', deadlines, place)
  if not score or tonumber(score) < now + wait / 2 then -- cut short, or not refreshed for long
    redis.call('ZADD', deadlines, deadline(places, now, wait), place)
  end
  if not score then
    redis.call('RPUSH', queue, place)
  end
  return head_of(queue, lock) == place and 1 or 2
end

-- crowd_passed: the first place has not come for the free lock in time. If it is a place of plain waiters without a subscriber, their
-- proxy has eight seconds to give a sign of life.
local function crowd_passed(publish, channel, deadlines, head, now)
  if string.sub(head, 37, 43) == ':plain-' and redis.call(publish, channel .. ':' .. head, '0') == 0 then
    redis.call('ZADD', deadlines, 'XX', 'LT', string.format('%.0f', now + 8000), head)
  end
end

local function crowd_granted(queue, deadlines, lock, place, stays)
  if stays ~= '1' then
    if redis.pcall('ZREM', deadlines, place) == 1 or head_of(queue, lock) == place then
      redis.call('LREM', queue, '1', place)
    end
    return 0
  end
  if head_of(queue, lock) == place then
    return 1
  end
  return type(redis.pcall('ZSCORE', deadlines, place)) == 'string' and 2 or 0
end
