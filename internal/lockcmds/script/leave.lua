-- leave.lua: fair waiters give up their places in the queue.
--
-- If the first of a free lock is among them, the next one is woken: no other script does it. So is a waiter of the
-- same owner elsewhere, which has lost its place. One pass over the queue, however many they are.
--
-- Returns  {removed}  how many of them were in the queue

local queue, deadlines, lock, channel = unpack(KEYS)
local publish = unpack(ARGV) -- and places

local first = head_of(queue, lock)
local leaving, n = {}, 0
local listed = redis.pcall('LLEN', queue)
local torn = type(listed) == 'number' and listed ~= redis.call('ZCARD', deadlines) -- some have no deadline; see lib/mend.lua
for i = 2, #ARGV do
  local place = unpack(ARGV, i, i)
  if redis.call('ZREM', deadlines, place) == 1 or place == first or torn then
    leaving[place] = true
    n = n + 1
  end
end
local removed = 0
if n <= 4 then
  for place in pairs(leaving) do
    if redis.call('LREM', queue, 1, place) == 1 then
      removed = removed + 1
      redis.call(publish, channel .. ':' .. place, '0')
    end
  end
else
  local stay = {}
  for _, place in ipairs(redis.call('LRANGE', queue, 0, -1)) do
    if leaving[place] then
      leaving[place] = nil
      removed = removed + 1
      redis.call(publish, channel .. ':' .. place, '0')
    else
      stay[#stay + 1] = place
    end
  end
  redis.call('DEL', queue)
  for from = 1, #stay, 1000 do
    redis.call('RPUSH', queue, unpack(stay, from, math.min(from + 999, #stay)))
  end
end
if removed > 0 and head_of(queue, lock) ~= first then
  next_turn(publish, channel, queue, lock)
end
return {removed}
