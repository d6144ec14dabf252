-- leave.lua: fair waiters give up their places in the queue.
--
-- If the first of a free lock is among them, the next one is woken: no other script does it. So is a waiter of the
-- same owner elsewhere, which has lost its place. One pass over the queue, however many they are.
--
-- KEYS[1]   queue      list of places of waiters, first to ask at the head
-- KEYS[2]   deadlines  zset place -> epoch ms after which it may be dropped
-- KEYS[3]   lock       hash, see lib/hash.lua; exists only while held
-- KEYS[4]   channel    base channel of the lock; a waiter listens on channel:place
-- ARGV[1]   publish    PUBLISH, or SPUBLISH in a cluster
-- ARGV[2..] places     whose
--
-- Returns  {removed}  how many of them were in the queue

local first = head_of(KEYS[1], KEYS[3])
local leaving, n = {}, 0
local listed = redis.pcall('LLEN', KEYS[1])
local torn = type(listed) == 'number' and listed ~= redis.call('ZCARD', KEYS[2]) -- some have no deadline; see lib/mend.lua
for i = 2, #ARGV do
  local place = ARGV[i]
  if redis.call('ZREM', KEYS[2], place) == 1 or place == first or torn then
    leaving[place] = true
    n = n + 1
  end
end
local removed = 0
if n <= 4 then
  for place in pairs(leaving) do
    if redis.call('LREM', KEYS[1], 1, place) == 1 then
      removed = removed + 1
      redis.call(ARGV[1], KEYS[4] .. ':' .. place, '0')
    end
  end
else
  local stay = {}
  for _, place in ipairs(redis.call('LRANGE', KEYS[1], 0, -1)) do
    if leaving[place] then
      leaving[place] = nil
      removed = removed + 1
      redis.call(ARGV[1], KEYS[4] .. ':' .. place, '0')
    else
      stay[#stay + 1] = place
    end
  end
  redis.call('DEL', KEYS[1])
  for from = 1, #stay, 1000 do
    redis.call('RPUSH', KEYS[1], unpack(stay, from, math.min(from + 999, #stay)))
  end
end
if removed > 0 and head_of(KEYS[1], KEYS[3]) ~= first then
  next_turn(ARGV[1], KEYS[4], KEYS[1], KEYS[3])
end
return {removed}
