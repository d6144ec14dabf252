-- mend: put a fair queue right, if its list and its deadlines do not speak of the same number of places.
--
-- One of them was evicted, or changed by hand. A place without a deadline gets one. A place that is in the list twice keeps its first entry. A
-- deadline without a place is removed, so its waiter queues again. O(1) if the numbers agree, else O(n) of the places.
--
-- listed is the length of the list, timed the number of deadlines. Returns how many places there are then.

local function mend(queue, deadlines, listed, timed, now, wait)
  if listed == timed then
    return listed
  end
  local fresh, queued = deadline(listed, now, wait), {}
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
  return redis.call('LLEN', queue)
end
