-- mend: put a fair queue right, if its list and its deadlines do not speak of the same number of places.
--
-- One of them was evicted, or changed by hand. A place without a deadline gets one. A place that is in the list twice keeps its first entry. A
-- deadline without a place is removed, so its waiter queues again. O(1) if the numbers agree, else O(n) of the places.

local function mend(queue, deadlines, now, wait)
  if redis.call('LLEN', queue) == redis.call('ZCARD', deadlines) then
    return
  end
  local fresh, queued = deadline(queue, now, wait), {}
  for _, place in ipairs(redis.call('LRANGE', queue, 0, -1)) do
    if queued[place] then
      redis.call('LREM', queue, -1, place)
    end
    queued[place] = true
    redis.call('ZADD', deadlines, 'NX', fresh, place)
  end
  for _, place in ipairs(redis.call('ZRANGE', deadlines, 0, -1)) do
    if not queued[place] then
      redis.call('ZREM', deadlines, place)
    end
  end
end
