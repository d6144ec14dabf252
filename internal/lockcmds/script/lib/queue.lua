-- queue: the fair queue of a lock, and whose turn it is.
--
-- The queue is Redisson's: a list of places, and a zset of deadlines, after which Redisson drops a place. A place is
-- that of a fair waiter, or the one that the plain waiters of a proxy share (their crowd). A waiter is woken by a
-- message on channel:place. Plain waiters of other proxies listen on the base channel alone.
--
-- A release wakes the first place that listens, and keeps the free lock for it for a moment. A waiter that leaves the
-- head of the queue without the lock wakes the next one. A key of another type counts as an empty queue: it must not
-- keep a lock from being released.

-- waits_for reports whether a place may wait for this lock. Redisson's rule gives the locks "a" and "{a}" one queue.
-- Places of waiters for "{a}" at a proxy end in "{}". A place without that mark waits for "a", or is Redisson's and may
-- wait for either: for "{a}" it is passed over while "a" is held.
local function waits_for(place)
  return (string.sub(place, -2) == '{}') == (string.find(lock, '^{[^{]+}$') ~= nil)
end

-- head_of: the first place that may wait for this lock; nil: there is none, and the second result is 2 if the key of
-- the queue holds something else. O(1), unless both locks have waiters.
local function head_of()
  local head = redis.pcall('LINDEX', queue, '0') -- Redis prints a number as a float, a text as it is
  if type(head) ~= 'string' then
    return nil, head and 2 or nil
  elseif waits_for(head) then
    return head
  end
  local other = string.match(lock, '^{([^{]+)}$')
  if other and redis.pcall('EXISTS', other) ~= 1 then
    return head
  end
  local from, places = 1, nil
  repeat
    places = redis.call('LRANGE', queue, from, from + 99)
    for _, place in ipairs(places) do
      if waits_for(place) then
        return place
      end
    end
    from = from + 100
  until #places < 100
end

-- tell_head tells the first place, unless it is that of except: 0: it may ask; or the lease in ms: it is the first, and
-- the lock is held for that long. Redisson's waiters do not heed a number larger than 1.
local function tell_head(message, except)
  local head = head_of()
  if head and head ~= except then
    redis.call(publish, channel .. ':' .. head, message)
  end
end

-- wake tells plain waiters and the first place that the lock may be had now, or earlier than they were told.
local function wake()
  redis.call(publish, channel, '0')
  tell_head('0')
end

-- tell_rwlock tells Redisson's read and write locks that they may ask: 1 wakes all that wait, and 0 one that is about
-- to. A user without the right to their channel frees the lock all the same.
local function tell_rwlock()
  local theirs = 'redisson_rwlock' .. string.sub(channel, 23) -- behind redisson_lock__channel
  redis.pcall(publish, theirs, '1')
  redis.pcall(publish, theirs, '0')
end

-- keep_for_first keeps a free lock for the first place that listens, for a moment, and wakes it. A newcomer would
-- always be faster than a waiter that has to be woken. A waiter that does not listen yet asks when it does. Returns
-- whether the lock is kept. The key has the name of the base channel, so it takes no rights of its own; Redisson has no
-- such key.
local function keep_for_first()
  local head = head_of()
  if not head then
    return false
  end
  if redis.call(publish, channel .. ':' .. head, '0') == 0 then
    local others, dead = redis.call('LRANGE', queue, '0', '15'), head
    head = nil
    for _, place in ipairs(others) do
      if place ~= dead and waits_for(place) and redis.call(publish, channel .. ':' .. place, '0') > 0 then
        head = place
        break
      end
    end
  end
  if head then
    redis.call('SET', channel, head, 'PX', 250)
  end
  return head ~= nil
end

-- kept_for is the place for which a free lock is kept; nil: it is not kept. The locks "a" and "{a}" share the key. One
-- with a longer TTL, or none, is not ours.
local function kept_for()
  local left = redis.call('PTTL', channel)
  local place = left >= 0 and left <= 250 and redis.pcall('GET', channel)
  if type(place) == 'string' and (string.sub(place, -2) == '{}') == (string.find(lock, '^{[^{]+}$') ~= nil) then
    return place
  end
end

-- free frees a lock. If the user may not publish, the lock stays, and the error says so.
local function free()
  redis.call(publish, channel, '0')
  tell_rwlock()
  keep_for_first()
  redis.call('DEL', lock)
end

-- take_turn: a place leaves the queue. The deadlines of the others stay as they are: none was computed from another.
-- O(log n) of the places.
local function take_turn(place)
  redis.call('LREM', queue, '1', place)
  redis.pcall('ZREM', deadlines, place) -- a key of another type has no deadline to remove
end

-- next_turn: the first place has left the queue without the lock. The next one has its turn, or learns that it is the
-- first.
local function next_turn()
  if redis.call('EXISTS', lock) == 1 then
    tell_head('0')
  elseif not keep_for_first() then
    redis.call('DEL', channel)
  end
end

-- deadline is until when a place in a queue of that many places is kept for a waiter that gives a sign of life now.
--
-- Redisson takes its wait off every deadline once for each of its waiters that leaves the queue, and only those ahead
-- of a place can leave before it does. So a place gets one wait of its own and one for each place in the queue, and no
-- deadline depends on another.
local function deadline(places, now, wait)
  return string.format('%.0f', now + wait * (places + 1))
end

-- mend puts a queue right if its list and its deadlines do not speak of the same number of places: one of them was
-- evicted, or changed by hand. A place without a deadline gets one. A place that is in the list twice keeps its first
-- entry. A deadline without a place is removed, so its waiter queues again. Returns how many places there are then.
-- O(1) if the numbers agree, else O(n) of the places.
local function mend(listed, timed, now, wait)
  if listed == timed then
    return listed
  end
  local fresh, queued = deadline(listed, now, wait), {}
  for _, place in ipairs(redis.call('LRANGE', queue, 0, -1)) do
    if queued[place] then
      redis.call('LREM', queue, -1, place)
    end
    queued[place] = true
    redis.call('ZADD', deadlines, 'NX', fresh, place)
  end
  for _, place in ipairs(redis.call('ZRANGE', deadlines, 0, -1)) do
    if not queued[place] then
      redis.call('ZREM', deadlines, place)
    end
  end
  return redis.call('LLEN', queue)
end

-- keep_queue: the queue goes after a day without a sign of life. A proxy that dies leaves the places of its waiters,
-- perhaps of locks that no client asks for again. One that lives refreshes them every few minutes. Redisson's waiters
-- ask again if their queue is gone.
--
-- Of the places that join, the first does this, and then one in sixteen: a queue may have waiters all the time. places:
-- how many there are with it.
local function keep_queue(places, now)
  if places == 1 or now % 16 == 0 then
    redis.call('PEXPIRE', queue, '86400000')
    redis.call('PEXPIRE', deadlines, '86400000')
  end
end

-- line_up: a fair waiter takes a place at the end of the queue, unless it is in the queue. rest is the rest of the
-- holder's lease.
local function line_up(head, place, now, rest, wait)
  local places = mend(redis.call('LLEN', queue), redis.call('ZCARD', deadlines), now, wait)
  local score = deadline(places, now + math.max(rest, 0), wait)
  if redis.call('ZADD', deadlines, 'NX', score, place) == 1 or not head then
    keep_queue(redis.call('RPUSH', queue, place), now)
  end
end

-- drop_late drops the first places of a free lock's queue whose deadline is over and whose channel has no subscriber,
-- up to the caller's own, which is alive. A place without a deadline would block Redisson for ever, and gets one. One
-- that is late may be alive, because clocks jump: if it has a subscriber, the message wakes it, and it gets a new
-- deadline.
-- Returns the first place then, or nil.
local function drop_late(place, now, wait)
  local head = head_of()
  while head and head ~= place do
    local score = redis.pcall('ZSCORE', deadlines, head)
    if score and (tonumber(score) or now + 1) > now then
      break -- or the key of the deadlines holds something else
    end
    if not score or redis.call(publish, channel .. ':' .. head, '0') > 0 then
      redis.call('ZADD', deadlines, deadline(redis.call('LLEN', queue), now, wait), head)
      break
    end
    take_turn(head)
    head = head_of()
  end
  return head
end

-- leads reports whether a place is the first that listens, among the first 16. One that listens in front of it is told.
local function leads(place)
  for _, other in ipairs(redis.call('LRANGE', queue, '0', '15')) do
    if other == place then
      return true
    elseif waits_for(other) and redis.call(publish, channel .. ':' .. other, '0') > 0 then
      return false
    end
  end
end

-- crowd_joins: the plain waiters of a proxy take a place, or keep theirs. Returns where it is then: 0 not in the queue,
-- 1 at its head, 2 behind others (see package table).
local function crowd_joins(place, now, wait)
  local listed, timed = redis.pcall('LLEN', queue), redis.pcall('ZCARD', deadlines)
  if type(listed) == 'table' or type(timed) == 'table' then
    return 0 -- not a queue, but something else: plain waiters can do without
  end
  local places = mend(listed, timed, now, wait)
  local score = redis.call('ZSCORE', deadlines, place)
  if not score or tonumber(score) < now + wait / 2 then -- cut short, or not refreshed for long
    redis.call('ZADD', deadlines, deadline(places, now, wait), place)
  end
  if not score then
    keep_queue(redis.call('RPUSH', queue, place), now)
  end
  return head_of() == place and 1 or 2
end

-- crowd_granted: the first of the plain waiters has the lock. Their place stays in the queue, or leaves it. Returns as
-- crowd_joins does.
local function crowd_granted(place, stays)
  if stays ~= '1' then
    if redis.pcall('ZREM', deadlines, place) == 1 or head_of() == place then
      redis.call('LREM', queue, '1', place)
    end
    return 0
  end
  if head_of() == place then
    return 1
  end
  return type(redis.pcall('ZSCORE', deadlines, place)) == 'string' and 2 or 0
end

-- crowd_passed: the first place has not come for the free lock in time. If it is that of plain waiters without a
-- subscriber, their proxy has eight seconds to give a sign of life.
local function crowd_passed(head, now)
  if string.sub(head, 37, 43) == ':plain-' and redis.call(publish, channel .. ':' .. head, '0') == 0 then
    redis.call('ZADD', deadlines, 'XX', 'LT', string.format('%.0f', now + 8000), head)
  end
end

--@ turn: of a hand-over: who is next, 1 the first plain waiter here, 2 the first fair one; 0: it is another's turn
local who = 0
if not head then
  who = fair and 2 or 1
elseif plain and head == crowd then
  who = 1
elseif fair and head == fair_place then
  who = 2
end

--@ crowd_place: where the place of the plain waiters is behind a hand-over to who
local place = 0
if who == 1 and head and stays == '1' then
  place = 1 -- the turn of the plain waiters goes on
elseif head and plain then
  --@
  if who == 1 then
    place = crowd_granted(crowd, stays)
  else
    place = crowd_joins(crowd, milliseconds(redis.call('TIME')), tonumber(wait))
  end
end
