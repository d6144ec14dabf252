-- refresh.lua: push the deadlines of live fair waiters ahead of the clock. Deadlines never move back.
--
-- O(log n) of the places for each waiter, behind mend. A waiter without a place learns here that it must queue again.
--
-- KEYS[1]   queue      list of places of waiters, first to ask at the head
-- KEYS[2]   deadlines  zset place -> epoch ms after which it may be dropped
-- ARGV[1]   wait_ms    what a deadline is counted in, > 0
-- ARGV[2..] places     of live waiters, at most a few thousand
--
-- Returns  {n}  how many of the places are in the queue

local time, wait = redis.call('TIME'), tonumber(ARGV[1])
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local places = mend(KEYS[1], KEYS[2], redis.call('LLEN', KEYS[1]), redis.call('ZCARD', KEYS[2]), now, wait)
local fresh = deadline(places, now, wait)
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
