-- refresh.lua: push the deadlines of live fair waiters to at least wait_ms from now.
--
-- Everybody behind a refreshed waiter moves by as much, so deadlines keep their spacing and grow along the queue:
-- each later leaves takes the wait of those before it off again. O(queue length).
--
-- KEYS[1]   queue      list of waiting owners, first to ask at the head
-- KEYS[2]   deadlines  zset owner -> epoch ms after which anybody may drop it
-- ARGV[1]   wait_ms    how far from now, > 0
-- ARGV[2..] owners     the live waiters
--
-- Returns  {n}  how many of the owners are in the queue

local wait = tonumber(ARGV[1])
local live = {}
for i = 2, #ARGV do
  live[ARGV[i]] = true
end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local n, shift = 0, 0
for _, owner in ipairs(redis.call('LRANGE', KEYS[1], 0, -1)) do
  local was = tonumber(redis.call('ZSCORE', KEYS[2], owner) or 0)
  local score = was
  if was > 0 then
    score = was + shift
  end
  if live[owner] then
    n = n + 1
    if score < now + wait then
      if was > 0 then
        shift = shift + now + wait - score
      end
      score = now + wait
    end
  end
  if score ~= was then
    redis.call('ZADD', KEYS[2], string.format('%.0f', score), owner)
  end
end
return {n}
