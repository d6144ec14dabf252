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
local held = hold_of(owner)
local mode = held[4]
if held.err then
  return held
elseif held[1] then
  return mode == 'read' and {0, -4} or deepen(held, owner, lease, name or '', field)
elseif mode == 'read' and redis.call('HLEN', lock) > 200 then -- the lock may outlast a crowd; see settle_shared
  --@
  pttl = rest_of(pttl)
  if pttl == -2 then
    local fence, odd = grant(owner, lease, redis.call('TIME'), name or '')
    return odd and {1, fence, 1, odd} or fence
  end
end
local form = mode and mode ~= 'lock' and 1 or nil
return {0, pttl, form and 0, form}

--@ attempt: an acquire asks at a place in the queue, or for a shared hold. It takes a lock that is free and whose turn
-- it is, joins other shared holders, deepens the hold of its owner, or takes a place.
--
-- A fair waiter asks at its own place, and takes the lock only in its turn. The first of the plain waiters of a proxy
-- asks at the place of all. It takes a free lock that is not kept for another place, even if another is first: the lock
-- was freed by the end of a lease, or the first one has not come for it. A lock that is held shared takes another
-- holder only if no other place is first. So a waiter that wants the lock for itself is not overtaken by one shared
-- holder after the other. An owner that holds the lock already goes ahead: it would wait for itself.
--
-- Scores are epoch milliseconds by Redis TIME, so that Redisson's clients can share the queue: they drop a head whose
-- deadline is over. Here a head loses its place only if its channel has no subscriber either. O(log n) of the places,
-- and as much for each head that is dropped.
--
-- Run again, the script finds its grant, and sets the lease anew; a place in the queue is not taken twice. A copy that
-- arrives after the waiter has left takes a place without a waiter; see remove_head.
--
-- With timeout a shared hold is asked for. Arguments behind publish may be absent.
--
-- Returns  {1, fence, holds, odd, place}     acquired; odd 1: the counter held no fence
--          {1, fence, holds, odd, place, 3}  asked for a shared hold, and has deepened an exclusive one
--          fence                             acquired, a first hold; odd and place are 0
--          {0, pttl_ms, place}               not acquired; pttl -2: free, but kept for another, or others are first
--          {0, pttl_ms, place, 1}            the same, as in acquire; pttl -3: held shared, but others are first
--          {0, -4}                           as in acquire; no place is taken
--          place: of plain waiters, 0 not in the queue, 1 at its head, 2 behind others; of a fair one 1: it is first,
--          and the holder's release may tell the base channel alone, as Redisson's do; else 0

local lock, queue, channel, counter, deadlines, timeout = unpack(KEYS)
local owner, lease, publish, name, field, tell, place, way, stays, enqueue, wait = unpack(ARGV)

if timeout and not name then -- usually the lock is free or held shared, and no place is first
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

-- The usual way of a shared hold ends here.
--@
name, way, wait = name or '', way or '', tonumber(wait or 0)
local shared, fair = timeout ~= nil, way == 'fair'
local time, head, pttl = redis.call('TIME'), head_of(), redis.call('PTTL', lock)
local now, mode, held = milliseconds(time), nil, nil
if pttl ~= -2 then
  --@
  held = hold_of(owner)
  mode = held[4]
  if held.err then
    return held
  elseif held[1] and mode == 'read' and not shared then
    return {0, -4}
  elseif held[1] then
    --@
    local answer = deepen(held, owner, lease, name, field)
    local left = fair and type(redis.pcall('ZSCORE', deadlines, place)) == 'string'
    if left then -- it waited, and another session of the owner has got the lock
      take_turn(place)
    elseif way == 'crowd' then
      answer[5] = crowd_granted(place, stays)
    end
    if mode == 'read' and (left or way == 'crowd') then
      tell_head('0', place) -- it may want to share the lock, too
    end
    answer[6] = shared and mode ~= 'read' and 3 or nil
    return answer
  elseif mode == 'read' and pttl >= 0 and not shared then
    --@
    pttl = rest_of(pttl)
    mode = pttl ~= -2 and mode
  end
end

local free = pttl == -2
if free or shared and mode == 'read' and not held[5] then
  --@
  local owns = fair and not shared -- a free lock that is kept for another: the first one has its turn all the same
  local turn = free and not (owns and (not head or head == place)) and kept_for()
  if not turn or turn == place or owns then
    if head and head ~= place and way ~= '' then
      --@
      head = drop_late(place, now, wait)
      if fair and turn == place and leads(place) then
        head = place
      elseif free and head and head ~= place and way == 'crowd' then
        crowd_passed(head, now)
      end
    end
    if not head or head == place or free and not fair then
      local at, fence, odd = 0, nil, nil
      if turn or owns and head then
        redis.call('DEL', channel)
      end
      if fair and head then
        --@
        take_turn(place)
      elseif way == 'crowd' then
        --@
        at = crowd_granted(place, stays)
      end
      if shared and head then
        --@
        tell_head('0', place) -- it may want to share the lock, too
      elseif head == place and at == 0 then
        --@
        tell_head(lease)
      end
      if tell and tell ~= '' then
        redis.call(publish, tell, '0')
      end
      if shared then
        --@
        fence, odd = share(owner, lease, time, mode, name)
        if mode == 'read' and time[2] % 64 == 0 then
          --@
          sweep(time[2])
        end
      else
        --@
        fence, odd = grant(owner, lease, time, name)
      end
      return (odd or at > 0) and {1, fence, 1, odd or 0, at} or fence
    end
    pttl = free and -2 or -3
  end
end

local at, form = 0, mode and mode ~= 'lock' and 1 or nil
if fair then
  --@
  if enqueue == '1' and head ~= place then
    line_up(head, place, now, pttl, wait)
    head = head or place
  end
  at = head == place and mode ~= 'lock' and 1 or 0
elseif way == 'crowd' and (enqueue == '1' or mode == 'read' or head) then -- behind it no holder gets in beside others
  --@
  at = crowd_joins(place, now, wait)
end
return {0, pttl, at, form}

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
