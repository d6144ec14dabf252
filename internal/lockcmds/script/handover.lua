-- handover.lua: release, and grant to a waiter of the same proxy in one step, if its turn has come.
--
-- The proxy names the first of its plain waiters, the first of its fair waiters, or both. The lock goes to the one
-- whose place is first in the queue. If the queue is empty, it goes to the fair one, which has lost its place, or to
-- the plain one. If the first place is another waiter's, this is a plain release. The plain waiters take a place when
-- other waiters have one. A lock that is handed over is never free, so no waiter is woken, unless its lease ends
-- earlier now than the waiters were told.
--
-- Run again, the script finds another owner, or changes nothing. A waiter that was granted the lock and asks for it
-- finds its grant.
--
-- Returns  {2, new fence, fence, odd, who, place}  released, and granted to who: 1 the plain waiter, 2 the fair one
--          {1, fence, 1, odd, 0, place}            released; fence 0: it was taken without one
--          {0, holds, fence}                       still held; the number of holds left
--          {-1}                                    the owner is not the holder
--          {-2, fence}                             it is, but by a grant with another fence
--          odd: 1 the counter held no fence; 2 the key of the queue holds something else; else 0
--          place: of the plain waiters, 0 not in the queue, 1 at its head, 2 behind others
-- The first may be -new fence: the fence is that of the call, one waiter is named, odd and place are 0.

local lock, channel, queue, counter, deadlines = unpack(KEYS)
local owner, fence, publish, holds, lease, field, wait, crowd, stays,
  plain_owner, plain_lease, plain_name, plain_tell, fair_owner, fair_lease, fair_name, fair_tell, fair_place = unpack(ARGV)

local known, over = false, tonumber(fence)
if holds == '0' and field == '' then -- usually it is the last hold, of the grant that the session knows
  local held = redis.pcall('HMGET', lock, owner, 'fence')
  known = held[1] and held[2] == fence
end
if not known then
  --@ hash
  --@ hold
  --@ lower
  local by, held = lower(lock, owner, fence, holds, lease, field)
  if not by then
    return held
  elseif held[4] == 'read' then
    return {-1}
  end
  over = by
  if field ~= '' then
    --@ tell_others
    tell_others(lock, owner, by, field, held[3])
  end
end
--@ head
local plain, fair = plain_owner ~= '', fair_owner ~= nil
local head = head_of(queue, lock)
local who, place = 0, 0
if not head then
  who = fair and 2 or 1
elseif plain and head == crowd then
  who = 1
elseif fair and head == fair_place then
  who = 2
end
local to, lease, name, tell = fair_owner, fair_lease, fair_name, fair_tell
if who == 1 then
  to, lease, name, tell = plain_owner, plain_lease, plain_name, plain_tell
end
local new, replaced
if who == 0 then
  --@ keep
  --@ tell_rwlock
  --@ free
  free(publish, channel, queue, lock)
else
  local left = redis.call('PTTL', lock)
  redis.call('DEL', lock)
  if who == 2 and head then
    --@ take_turn
    take_turn(queue, deadlines, head)
  end
  --@ grant
  new, replaced = grant(lock, counter, to, lease, redis.call('TIME'), name)
  if left < 0 or left > tonumber(lease) then
    --@ wake
    wake(publish, channel, queue, lock)
  end
  if tell ~= '' then
    redis.call(publish, tell, '0')
  end
end
if who == 1 and head and stays == '1' then
  place = 1 -- the turn of the plain waiters goes on
elseif head and plain then
  --@ deadline
  --@ crowd
  if who == 1 then
    place = crowd_granted(queue, deadlines, lock, crowd, stays)
  else
    place = crowd_joins(queue, deadlines, lock, crowd, tonumber(wait))
  end
end
local first = who ~= 0 and head and place ~= 1 and head_of(queue, lock)
-- A waiter of this proxy need not be told: the release of the next holder, which is here, wakes it by name.
if first and string.sub(first, 1, 36) ~= string.sub(crowd, 1, 36) then
  redis.call(publish, channel .. ':' .. first, lease)
end
local odd = replaced or no_queue or 0
if known and who ~= 0 and odd == 0 and place == 0 and not (plain and fair) then
  return -new
end
if who == 0 then
  return {1, over, 1, odd, 0, place}
end
return {2, new, over, odd, who, place}
