-- acquire_shared.lua: hold a lock shared, beside other shared holders, or deepen the hold of the owner, which stays
-- exclusive if it is.
--
-- A lock that is held shared takes another holder only if no other place is first in the fair queue. So a waiter that
-- wants the lock for itself is not overtaken by one shared holder after the other. An owner that holds the lock
-- already goes ahead: it would wait for itself. Run again, the script finds its grant, and sets the lease anew; a place
-- in the queue is not taken twice.
--
-- Returns  {1, fence, holds, odd, place}  acquired; odd 1: the counter held no fence
--          {1, fence, holds, odd, place, 3}  acquired, and the hold is exclusive
--          fence                          acquired, a first hold; or {1, fence, 1, 1}: the counter held no fence
--          {0, pttl_ms, place}            not acquired; pttl -2: free, but kept for another
--          {0, pttl_ms, place, 1}         the same, as in acquire.lua; pttl -3: held shared, but others are first
--          place: of the plain waiters, 0 not in the queue, 1 at its head, 2 behind others; of a fair one as in fair.lua

local lock, queue, channel, counter, timeout, deadlines = unpack(KEYS)
local owner, lease, publish, name, field, tell, place, way, stays, enqueue, wait = unpack(ARGV)

if not name then -- usually the lock is free or held shared, and no place is first
  local reader = string.sub(timeout, #lock + (string.find(lock, '{', 1, true) and 2 or 4), -18)
  local held = redis.pcall('HMGET', lock, 'mode', reader)
  local fresh = not held.err and not held[1]
  local rest = held[1] == 'read' and not held[2] and redis.call('PTTL', lock) or -1 -- of no lock, an application's hash
  if fresh and redis.call('EXISTS', queue, lock, channel) == 0 or rest ~= -1 and redis.call('EXISTS', queue) == 0 then
    local time = redis.call('TIME')
    --@ fence
    redis.call('SET', timeout, '1', 'PX', lease)
    redis.call('HSET', lock, 'mode', 'read', reader, '1', '{' .. reader .. '}', '#' .. text, '{}' .. text, '#' .. reader)
    if fresh then
      --@ expire
    elseif rest < tonumber(lease) then
      redis.call('PEXPIRE', lock, lease)
    end
    if time[2] % 64 == 0 then -- now and then
      --@ hash
      --@ shared
      --@ longest
      sweep(lock, time[2])
    end
    return replaced and {1, fence, 1, replaced} or fence
  end
end

-- The usual way ends here: the functions behind it are not even made.
--@ hash
--@ hold
--@ head
--@ turn
--@ take_turn
--@ deadline
name, tell, place, way, wait = name or '', tell or '', place or '', way or '', tonumber(wait or 0)
local held = hold_of(lock, owner)
local mode, pttl = held[4], redis.call('PTTL', lock)
if held.err then
  return held
end

local function tell_next() -- it may want to share the lock, too
  local next = head_of(queue, lock)
  if next and next ~= place then
    redis.call(publish, channel .. ':' .. next, '0')
  end
end

if held[1] then
  --@ keep
  --@ tell_rwlock
  --@ free
  --@ wake
  local answer, tells = nil, mode == 'read'
  if tells then
    --@ longest
    --@ leave_shared
    --@ set_lease
    --@ share_again
    answer = share_again(publish, channel, queue, lock, owner, lease, name, field, held)
  else
    --@ grant
    --@ deepen
    --@ shortened
    answer = deepen(lock, counter, owner, lease, name, field)
    shortened(publish, channel, queue, lock, pttl)
    answer[6] = 3
  end
  if way == 'fair' and type(redis.pcall('ZSCORE', deadlines, place)) == 'string' then
    take_turn(queue, deadlines, place) -- it waited, and another session of the owner has got the lock
  elseif way == 'crowd' then
    --@ crowd
    answer[5] = crowd_granted(queue, deadlines, lock, place, stays)
  else
    tells = false
  end
  if tells then
    tell_next()
  end
  return answer
end

local time, head = redis.call('TIME'), head_of(queue, lock)
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if pttl == -2 or mode == 'read' and not held[5] then
  local turn = pttl == -2 and kept_for(channel, lock)
  if not turn or turn == place then
    if head and head ~= place and way ~= '' then
      --@ drop_late
      head = drop_late(publish, channel, queue, deadlines, lock, place, now, wait)
    end
    if not head or head == place or pttl == -2 and way ~= 'fair' then
      if turn then
        redis.call('DEL', channel)
      end
      if tell ~= '' then
        redis.call(publish, tell, '0')
      end
      local fence, replaced = share(lock, counter, owner, lease, time, mode, name)
      if mode == 'read' and time[2] % 64 == 0 then
        --@ longest
        sweep(lock, time[2])
      end
      local at = 0
      if way == 'fair' and head == place then
        take_turn(queue, deadlines, place)
      elseif way == 'crowd' and head then
        --@ crowd
        at = crowd_granted(queue, deadlines, lock, place, stays)
      end
      if head then
        tell_next()
      end
      return {1, fence, 1, replaced or 0, at}
    end
    pttl = pttl == -2 and -2 or -3
  end
end

local at = 0
if way == 'fair' and enqueue == '1' and head ~= place then
  --@ mend
  --@ line_up
  line_up(queue, deadlines, head, place, now, pttl, wait)
  head = head or place
elseif way == 'crowd' and (enqueue == '1' or head) then
  --@ crowd
  at = crowd_joins(queue, deadlines, lock, place, wait)
end
if way == 'fair' and head == place and mode ~= 'lock' then
  at = 1
end
return {0, pttl, at, mode and mode ~= 'lock' and 1 or nil}
