-- acquire_shared.lua: hold a lock shared, beside other shared holders, or deepen the hold of the owner, which stays
-- exclusive if it is.
--
-- A lock that is held shared takes another holder only if no other place is first in the fair queue. So a waiter that
-- wants the lock for itself is not overtaken by one shared holder after the other. An owner that holds the lock
-- already goes ahead: it would wait for itself. Run again, the script finds its grant, and sets the lease anew; a place
-- in the queue is not taken twice.
--
-- KEYS[1]  lock       hash, see lib/hash.lua; exists only while held
-- KEYS[2]  queue      list of places of waiters, first to ask at the head
-- KEYS[3]  channel    base channel of the lock; as a key it says for which place the free lock is kept
-- KEYS[4]  fence      counter of all locks, or of this hash slot; never expires, never goes back
-- KEYS[5]  timeout    the lease of the owner; see lib/shared.lua
-- KEYS[6]  deadlines  zset place -> epoch ms after which it may be dropped; absent: it asks without a place
-- ARGV[1]  owner      opaque, non-empty, not 'fence' or 'mode', without braces
-- ARGV[2]  lease_ms   lease length, > 0
-- ARGV[3]  publish    PUBLISH, or SPUBLISH in a cluster
-- ARGV[4]  name       of the acquire, for a named owner; empty or absent: the owner has no other acquire
-- ARGV[5]  field      for a named owner, see by_with in lib/hold.lua
-- ARGV[6]  tell       channel on which other waiters of a named owner are told of a first hold; empty: there are none
-- ARGV[7]  place      the waiter's own, or that of the proxy's plain waiters; absent: it has none
-- ARGV[8]  way        fair: the place is its own; crowd: it is that of the plain waiters; absent: there is none
-- ARGV[9]  stays      1: that place stays in the queue if the lock is acquired; 0: it leaves
-- ARGV[10] enqueue    1: take a place if the lock is not acquired; 0: plain waiters do only if others have one
-- ARGV[11] wait_ms    what a deadline is counted in, > 0
--
-- Returns  {1, fence, holds, odd, place}  acquired; odd 1: the counter held no fence
--          {1, fence, holds, odd, place, 3}  acquired, and the hold is exclusive
--          fence                          acquired, a first hold; or {1, fence, 1, 1}: the counter held no fence
--          {0, pttl_ms, place}            not acquired; pttl -2: free, but kept for another
--          {0, pttl_ms, place, 1}         the same, as in acquire.lua; pttl -3: held shared, but others are first
--          place: of the plain waiters, 0 not in the queue, 1 at its head, 2 behind others; of a fair one as in fair.lua

local lock, owner = KEYS[1], ARGV[1]
if not ARGV[4] then -- usually the lock is free or held shared, and no place is first
  local name = string.sub(KEYS[5], #lock + (string.find(lock, '{', 1, true) and 2 or 4), -18)
  local held, queue = redis.pcall('HMGET', lock, 'mode', name), KEYS[2]
  local fresh = not held.err and not held[1]
  local rest = held[1] == 'read' and not held[2] and redis.call('PTTL', lock) or -1 -- of no lock, an application's hash
  if fresh and redis.call('EXISTS', queue, lock, KEYS[3]) == 0 or rest ~= -1 and redis.call('EXISTS', queue) == 0 then
    local counter, lease, time = KEYS[4], ARGV[2], redis.call('TIME')
    --@ fence
    redis.call('SET', KEYS[5], '1', 'PX', lease)
    redis.call('HSET', lock, 'mode', 'read', name, '1', '{' .. name .. '}', '#' .. text, '{}' .. text, '#' .. name)
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
local queue, channel, deadlines = KEYS[2], KEYS[3], KEYS[6]
local publish, by, field, tell = ARGV[3], ARGV[4] or '', ARGV[5], ARGV[6] or ''
local place, way, wait = ARGV[7] or '', ARGV[8] or '', tonumber(ARGV[11] or 0)
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
    answer = share_again(publish, channel, queue, lock, owner, ARGV[2], by, field, held)
  else
    --@ grant
    --@ deepen
    --@ shortened
    answer = deepen(lock, KEYS[4], owner, ARGV[2], by, field)
    shortened(publish, channel, queue, lock, pttl)
    answer[6] = 3
  end
  if way == 'fair' and type(redis.pcall('ZSCORE', deadlines, place)) == 'string' then
    take_turn(queue, deadlines, place) -- it waited, and another session of the owner has got the lock
  elseif way == 'crowd' then
    --@ crowd
    answer[5] = crowd_granted(queue, deadlines, lock, place, ARGV[9])
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
      local fence, replaced = share(lock, KEYS[4], owner, ARGV[2], time, mode, by)
      if mode == 'read' and time[2] % 64 == 0 then
        --@ longest
        sweep(lock, time[2])
      end
      local at = 0
      if way == 'fair' and head == place then
        take_turn(queue, deadlines, place)
      elseif way == 'crowd' and head then
        --@ crowd
        at = crowd_granted(queue, deadlines, lock, place, ARGV[9])
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
if way == 'fair' and ARGV[10] == '1' and head ~= place then
  --@ mend
  --@ line_up
  line_up(queue, deadlines, head, place, now, pttl, wait)
  head = head or place
elseif way == 'crowd' and (ARGV[10] == '1' or head) then
  --@ crowd
  at = crowd_joins(queue, deadlines, lock, place, wait)
end
if way == 'fair' and head == place and mode ~= 'lock' then
  at = 1
end
return {0, pttl, at, mode and mode ~= 'lock' and 1 or nil}
