-- line_up: take a place at the end of the fair queue, unless it is in the queue. rest is the rest of
-- the holder's lease in ms.

local function line_up(queue, deadlines, head, place, now, rest, wait)
  local places = mend(queue, deadlines, redis.call('LLEN', queue), redis.call('ZCARD', deadlines), now, wait)
  local score = deadline(places, now + math.max(rest, 0), wait)
  if redis.call('ZADD', deadlines, 'NX', score, place) == 1 or not head then
    redis.call('RPUSH', queue, place)
  end
end
