--@ head: the first place in the fair queue of a lock.
--
-- Returns  place  the first one; text
--          nil    the queue is empty

local lock, queue = unpack(KEYS)
--@
return head_of() or false

--@ places: the first places in the fair queue of a lock.
--
-- Returns  {place, ...}  text

local queue = unpack(KEYS)
local most = unpack(ARGV)
return redis.call('LRANGE', queue, '0', most - 1)

--@ look: wake those in the queue of a free lock that is not kept any more.
--
-- It was kept for the first of them that listens, which has not come.
--
-- Returns  {1}  it is kept: look again
--          {0}  it is held, or they have been told

local lock, channel, queue = unpack(KEYS)
local publish = unpack(ARGV)
--@
if redis.call('EXISTS', lock) == 1 then
  return {0}
elseif kept_for() then
  return {1}
end
local places = redis.pcall('LRANGE', queue, '0', '15')
for _, place in ipairs(places.err and {} or places) do
  redis.call(publish, channel .. ':' .. place, '0')
end
return {0}

--@ leave: fair waiters give up their places in the queue.
--
-- If the first of a free lock is among them, the next one is woken: no other script does it. So is a waiter of the
-- same owner elsewhere, which has lost its place. One pass over the queue, however many they are.
--
-- Returns  {removed}  how many of them were in the queue

local queue, deadlines, lock, channel = unpack(KEYS)
local publish = unpack(ARGV) -- and places
--@
local first = head_of()
local leaving, n = {}, 0
local listed = redis.pcall('LLEN', queue)
local torn = type(listed) == 'number' and listed ~= redis.call('ZCARD', deadlines) -- some have no deadline; see mend
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
  keep_queue(1)
end
if removed > 0 and head_of() ~= first then
  next_turn()
end
return {removed}

--@ remove_head: remove the first place in a queue if it has no subscriber, or its waiter ignores the free lock.
--
-- A live waiter subscribes within seconds of queueing. The caller has seen it in the queue for that long.
-- The message that asks is also a wake-up, so a live one that missed its turn takes it now. O(log n) of the places.
--
-- Returns  {1, receivers}  removed, and the next one woken
--          {0, receivers}  nothing done: not the first any more, or alive (receivers > 0); 0 if the lock is held

local lock, queue, deadlines, channel = unpack(KEYS)
local place, publish, force = unpack(ARGV)
--@
if head_of() ~= place then
  return {0, 0}
end
local receivers = redis.call(publish, channel .. ':' .. place, '0')
if receivers > 0 and redis.call('EXISTS', lock) == 1 then
  return {0, 0}
end
-- A waiter that listens and does not come may wait for the other lock of this queue ("{a}" beside "a"; see head_of).
if receivers > 0 and (force ~= '1' or redis.pcall('EXISTS', '{' .. lock .. '}') == 1) then
  return {0, receivers}
end
take_turn(place)
next_turn()
return {1, receivers}

--@ refresh: push the deadlines of live fair waiters ahead of the clock. Deadlines never move back.
--
-- O(log n) of the places for each waiter, behind mend. A waiter without a place learns here that it must queue again.
--
-- Returns  {n}  how many of the places are in the queue

local queue, deadlines = unpack(KEYS)
local wait = unpack(ARGV) -- and places
--@
wait = tonumber(wait)
local time = redis.call('TIME')
local now = milliseconds(time)
local places = mend(redis.call('LLEN', queue), redis.call('ZCARD', deadlines), now, wait)
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
keep_queue(1)
return {n}
