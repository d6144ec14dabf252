-- refresh.lua: push the deadlines of live fair waiters ahead of the clock. Deadlines never move back.
--
-- O(log n) of the places for each waiter, behind mend. A waiter without a place learns here that it must queue again.
--
-- Returns  {n}  how many of the places are in the queue

local queue, deadlines = unpack(KEYS)
local wait = unpack(ARGV) -- and places

wait = tonumber(wait)
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local places = mend(queue, deadlines, redis.call('LLEN', queue), redis.call('ZCARD', deadlines), now, wait)
local fresh = deadline(places, now, wait)
local n = 0
for i = 2, #ARGV do
  local place = unpack(ARGV, i, i)
  local score = redis.call('ZSCORE', deadlines, place)
  if score then
    n = n + 1
    if tonumber(score) < tonumber(fresh) then
      redis.call('ZADD', deadlines, fresh, place)
    end
  end
end
return {n}
