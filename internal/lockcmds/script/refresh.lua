-- refresh.lua: push the deadlines of live fair waiters ahead of the clock. Deadlines never move back.
--
-- O(log n) of the places for each waiter. If the list and the deadlines do not speak of the same number of places, as
-- after one of them was changed by hand, the deadlines are put right first, O(n): who has no place loses its deadline
-- and so learns that it must queue again; who has no deadline gets one.
--
-- KEYS[1]   queue      list of places of waiters, first to ask at the head
-- KEYS[2]   deadlines  zset place -> epoch ms after which it may be dropped
-- ARGV[1]   wait_ms    what a deadline is counted in, > 0
-- ARGV[2..] places     of live waiters, at most a few thousand
--
-- Returns  {n}  how many of the places are in the queue

local time = redis.call('TIME')
local fresh = deadline(KEYS[1], time[1] * 1000 + math.floor(time[2] / 1000), tonumber(ARGV[1]))

if redis.call('LLEN', KEYS[1]) ~= redis.call('ZCARD', KEYS[2]) then
  local queued = {}
  for _, place in ipairs(redis.call('LRANGE', KEYS[1], 0, -1)) do
    queued[place] = true
    redis.call('ZADD', KEYS[2], 'NX', fresh, place)
  end
  for _, place in ipairs(redis.call('ZRANGE', KEYS[2], 0, -1)) do
    if not queued[place] then
      redis.call('ZREM', KEYS[2], place)
    end
  end
end

local n = 0
for i = 2, #ARGV do
  local score = redis.call('ZSCORE', KEYS[2], ARGV[i])
  if score then
    n = n + 1
    if tonumber(score) < tonumber(fresh) then
      redis.call('ZADD', KEYS[2], fresh, ARGV[i])
    end
  end
end
return {n}
