--@ acquire: take a free lock that is not reserved, or deepen a hold of the owner.
--
-- Run again, the script finds its grant, and sets the lease anew. See lib/lock.lua.
--
-- Returns  {1, fence, holds, odd, 0}  acquired
--          fence                      acquired, a first hold; or {1, fence, 1, 1}: the counter held no fence
--          {0, pttl_ms}               held by another owner; -1: without a TTL; -2: free, but kept for a waiter
--          {0, pttl_ms, 0, 1}         the same, in the form of Redisson's read and write locks, which sharers use
--          {0, -4}                    the owner holds it shared, and would wait for itself

local lock, counter, channel, queue = unpack(KEYS)
local owner, lease, publish, name, field, tell = unpack(ARGV)
local pttl = -2
if redis.call('EXISTS', lock, channel) > 0 then -- usually neither exists, and this is one call less
  --@
  pttl = redis.call('PTTL', lock)
  if pttl == -2 and kept_for() then
    return {0, -2}
  end
end
if pttl == -2 then
  if tell then
    redis.call(publish, tell, '0')
  end
  local time = redis.call('TIME')
  --@ fence
  redis.call('HSET', lock, owner, '1', 'fence', text, 'mode', 'lock')
  if name then
    redis.call('HSET', lock, '{by}', name)
  end
  --@ expire
  return replaced and {1, fence, 1, replaced} or fence
end

-- The usual way ends here: no function is made on it.
--@
local answer, mode = deepen(owner, lease, name or '', field)
if not answer and mode == 'read' then
  --@
  if redis.call('HLEN', lock) > 200 then -- the lock may outlast a crowd; see settle_shared
    pttl = rest_of(pttl)
    if pttl == -2 then
      local fence, odd = grant(owner, lease, redis.call('TIME'), name or '')
      return odd and {1, fence, 1, odd} or fence
    end
  end
end
local form = mode and mode ~= 'lock' and 1 or nil
return answer or {0, pttl, form and 0, form}

--@ acquire_shared: hold a lock shared, beside other shared holders, or deepen the hold of the owner, which stays
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
--          {0, pttl_ms, place, 1}         the same, as in acquire; pttl -3: held shared, but others are first
--          place: of plain waiters, 0 not in the queue, 1 at its head, 2 behind others; of a fair one as in fair

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
    local record = '#' .. text
    redis.call('HSET', lock, 'mode', 'read', reader, '1', '{' .. reader .. '}', record, '{}' .. text, '#' .. reader)
    if fresh then
      --@ expire
    elseif rest < tonumber(lease) then
      redis.call('PEXPIRE', lock, lease)
    end
    if time[2] % 64 == 0 then -- now and then
      --@
      sweep(time[2])
    end
    return replaced and {1, fence, 1, replaced} or fence
  end
end

-- The usual way ends here: the functions behind it are not even made.
--@
name, tell, place, way, wait = name or '', tell or '', place or '', way or '', tonumber(wait or 0)
local held = hold_of(owner)
local mode, pttl = held[4], redis.call('PTTL', lock)
if held.err then
  return held
end

if held[1] then
  --@
  local answer, tells = nil, mode == 'read'
  if tells then
    --@
    answer = share_again(owner, lease, name, field, held)
  else
    --@
    answer = deepen(owner, lease, name, field)
    answer[6] = 3
  end
  if way == 'fair' and type(redis.pcall('ZSCORE', deadlines, place)) == 'string' then
    take_turn(place) -- it waited, and another session of the owner has got the lock
  elseif way == 'crowd' then
    --@
    answer[5] = crowd_granted(place, stays)
  else
    tells = false
  end
  if tells then
    tell_head('0', place) -- it may want to share the lock, too
  end
  return answer
end

local time, head = redis.call('TIME'), head_of()
local now = milliseconds(time)
if pttl == -2 or mode == 'read' and not held[5] then
  local turn = pttl == -2 and kept_for()
  if not turn or turn == place then
    if head and head ~= place and way ~= '' then
      --@
      head = drop_late(place, now, wait)
    end
    if not head or head == place or pttl == -2 and way ~= 'fair' then
      if turn then
        redis.call('DEL', channel)
      end
      if tell ~= '' then
        redis.call(publish, tell, '0')
      end
      local fence, replaced = share(owner, lease, time, mode, name)
      if mode == 'read' and time[2] % 64 == 0 then
        --@
        sweep(time[2])
      end
      local at = 0
      if way == 'fair' and head == place then
        take_turn(place)
      elseif way == 'crowd' and head then
        --@
        at = crowd_granted(place, stays)
      end
      if head then
        tell_head('0', place) -- it may want to share the lock, too
      end
      return {1, fence, 1, replaced or 0, at}
    end
    pttl = pttl == -2 and -2 or -3
  end
end

local at = 0
if way == 'fair' and enqueue == '1' and head ~= place then
  --@
  line_up(head, place, now, pttl, wait)
  head = head or place
elseif way == 'crowd' and (enqueue == '1' or head) then
  --@
  at = crowd_joins(place, wait)
end
if way == 'fair' and head == place and mode ~= 'lock' then
  at = 1
end
return {0, pttl, at, mode and mode ~= 'lock' and 1 or nil}

--@ fair: acquire in order of asking: take a lock that is free and whose turn it is, deepen a hold, or queue.
--
-- Scores are epoch milliseconds by Redis TIME, so that Redisson's clients can share the queue: they drop a head whose
-- deadline is over. Here a head loses its place only if its channel has no subscriber either. O(log n) of the places,
-- and as much for each head that is dropped.
--
-- Run again, the script finds its grant, and sets the lease anew; a place in the queue is not taken twice. A copy that
-- arrives after the waiter has left takes a place without a waiter; see remove_head.
--
-- Returns  {1, fence, holds, odd, 0}  acquired
--          fence                      acquired, a first hold; or {1, fence, 1, 1}: the counter held no fence
--          {0, pttl_ms}               not acquired; pttl -2: free, but others are first
--          {0, pttl_ms, first, 1}     the same, as in acquire; first 1: its place is the first, and the holder's
--                                     release may tell the base channel alone, as Redisson's do; 0 or absent: else
--          {0, -4}                    the owner holds it shared, as in acquire; no place is taken

local lock, queue, deadlines, counter, channel = unpack(KEYS)
local owner, lease, name, field, wait, enqueue, publish, place, tell = unpack(ARGV)
--@
wait = tonumber(wait)
local time = redis.call('TIME')
local now = milliseconds(time)
local head = head_of()
local pttl, mode, form = redis.call('PTTL', lock), nil, nil
if pttl ~= -2 then
  mode = redis.pcall('HGET', lock, 'mode')
  if mode == 'read' and pttl ~= -1 then
    --@
    pttl = rest_of(pttl)
  end
  form = pttl ~= -2 and type(mode) == 'string' and mode ~= 'lock' and 1 or nil
end
if pttl == -2 then
  --@
  if head and head ~= place then
    --@
    head = drop_late(place, now, wait)
    if head and head ~= place and kept_for() == place then -- those before it did not listen
      for _, other in ipairs(redis.call('LRANGE', queue, '0', '15')) do
        if other == place then
          head = place
          break
        elseif waits_for(other) and redis.call(publish, channel .. ':' .. other, '0') > 0 then
          break
        end
      end
    end
  end
  if not head or head == place then
    if head then
      take_turn(place)
      redis.call('DEL', channel)
      --@
      tell_head(lease)
    end
    if tell ~= '' then
      redis.call(publish, tell, '0')
    end
    --@
    local fence, odd = grant(owner, lease, time, name)
    return odd and {1, fence, 1, odd} or fence
  end
elseif mode ~= 'lock' or redis.pcall('HEXISTS', lock, owner) ~= 0 then
  --@
  local answer
  answer, mode = deepen(owner, lease, name, field)
  if answer and answer[1] == 0 then
    return answer
  elseif answer then
    local waited = not answer.err and tell ~= ''
    if waited and type(redis.pcall('ZSCORE', deadlines, place)) == 'string' then
      --@
      take_turn(place) -- it waited, and another session of the owner has got the lock
    end
    return answer
  end
end

if enqueue == '1' and head ~= place then
  --@
  line_up(head, place, now, pttl, wait)
  head = head or place
end
return {0, pttl, head == place and mode ~= 'lock' and 1 or form and 0, form}

--@ crowd: acquire for the first of the plain waiters of a proxy, which share one place in the fair queue.
--
-- A free lock that is not reserved is taken, even if another place is first: it was freed by the end of a lease, or
-- the first has not come for it. Run again, the script finds its grant, and sets the lease anew.
--
-- Returns  {1, fence, holds, odd, place}  acquired; odd 1: the counter held no fence
--          {0, pttl_ms, place}            not acquired; pttl -2: free, but kept for another
--          {0, pttl_ms, place, form}      the same; form as in acquire
--          {0, -4}                        the owner holds it shared, as in acquire
--          place: 0 not in the queue, 1 at its head, 2 behind others

local lock, queue, deadlines, counter, channel = unpack(KEYS)
local owner, lease, name, field, wait, place, stays, enqueue, publish, tell = unpack(ARGV)
--@
local pttl, mode = redis.call('PTTL', lock), nil
if pttl >= 0 and redis.pcall('HGET', lock, 'mode') == 'read' then
  --@
  pttl = rest_of(pttl)
end
if pttl == -2 then
  local turn = kept_for()
  if not turn or turn == place then
    if turn then
      redis.call('DEL', channel)
    end
    local time = redis.call('TIME')
    local head = head_of()
    if head and head ~= place then
      local now = milliseconds(time)
      head = drop_late(place, now, tonumber(wait))
      if head and head ~= place then
        crowd_passed(head, now)
      end
    end
    if tell ~= '' then
      redis.call(publish, tell, '0')
    end
    local fence, replaced = grant(owner, lease, time, name)
    local at = crowd_granted(place, stays)
    if head == place and at == 0 then
      tell_head(lease)
    end
    return {1, fence, 1, replaced or 0, at}
  end
else
  local answer
  answer, mode = deepen(owner, lease, name, field)
  if answer and answer[1] == 0 then
    return answer
  elseif answer then
    if not answer.err then
      answer[5] = crowd_granted(place, stays)
    end
    return answer
  end
end
local form = mode and mode ~= 'lock' and 1 or nil
if enqueue == '1' or mode == 'read' or head_of() then -- behind the place no further holder gets in beside others
  return {0, pttl, crowd_joins(place, tonumber(wait)), form}
end
return {0, pttl, 0, form}

--@ deepen: the only session of an owner acquires a lock again that it holds.
--
-- It never grants: if the owner has not that grant any more, the session asks under another name. Run again, the script
-- does the same.
--
-- Returns  {1, fence, holds}  acquired
--          {-1}               the owner does not hold the lock by that grant

local lock, channel, queue, timeout = unpack(KEYS)
local owner, fence, publish, holds, lease = unpack(ARGV)
--@
local held = hold_of(owner)
if held.err then
  return held
elseif not held[1] or held[2] ~= fence then
  return {-1}
elseif held[4] == 'read' then
  --@
  set_lease(owner, lease)
  put_shared(owner, fence, holds, '')
else
  --@
  redis.call('HSET', lock, owner, holds)
  lease_anew(lease)
end
return {1, tonumber(fence), tonumber(holds)}
