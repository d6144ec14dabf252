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
-- KEYS[1]  lock         hash, see lib/hash.lua; exists only while held
-- KEYS[2]  channel      base channel of the lock; a waiter listens on channel:place
-- KEYS[3]  queue        list of places of waiters, first to ask at the head
-- KEYS[4]  fence        counter of all locks, or of this hash slot; never expires, never goes back
-- KEYS[5]  deadlines    zset place -> epoch ms after which it may be dropped
-- ARGV[1]  owner        that releases
-- ARGV[2]  fence        release only the grant with this fence; 0: any
-- ARGV[3]  publish      PUBLISH, or SPUBLISH in a cluster
-- ARGV[4]  holds        of the owner's only session after this
-- ARGV[5]  lease_ms     least lease that goes on if holds are left; 0: its TTL stays
-- ARGV[6]  field        the session in braces, for a named owner; empty: the owner has one session
-- ARGV[7]  wait_ms      what a deadline is counted in, > 0
-- ARGV[8]  crowd        place of the plain waiters
-- ARGV[9]  stays        1: that place stays in the queue after a grant to them; 0: it leaves
-- ARGV[10] plain_owner  first of the plain waiters, another owner; empty: there is none
-- ARGV[11] plain_lease  its lease length in ms, > 0
-- ARGV[12] plain_name   of its acquire, for a named owner; empty: the owner has no other acquire
-- ARGV[13] plain_tell   channel on which other waiters of that owner are told; empty: there are none
-- ARGV[14] fair_owner   first of the fair waiters, another owner; absent: there is none
-- ARGV[15] fair_lease   its lease length in ms, > 0
-- ARGV[16] fair_name    as plain_name
-- ARGV[17] fair_tell    as plain_tell
-- ARGV[18] fair_place   its place
--
-- Returns  {2, new fence, fence, odd, who, place}  released, and granted to who: 1 the plain waiter, 2 the fair one
--          {1, fence, 1, odd, 0, place}            released; fence 0: it was taken without one
--          {0, holds, fence}                       still held; the number of holds left
--          {-1}                                    the owner is not the holder
--          {-2, fence}                             it is, but by a grant with another fence
--          odd: 1 the counter held no fence; 2 the key of the queue holds something else; else 0
--          place: of the plain waiters, 0 not in the queue, 1 at its head, 2 behind others
-- The first may be -new fence: the fence is that of ARGV[2], one waiter is named, odd and place are 0.

local known, fence = false, nil
if ARGV[4] == '0' and ARGV[6] == '' then -- usually it is the last hold, of the grant that the session knows
  local held = redis.pcall('HMGET', KEYS[1], ARGV[1], 'fence')
  known = held[1] and held[2] == ARGV[2]
end
if not known then
  --@ hash
  --@ hold
  --@ lower
  local by, held = lower(KEYS[1], ARGV[1], ARGV[2], ARGV[4], ARGV[5], ARGV[6])
  if not by then
    return held
  elseif held[4] == 'read' then
    return {-1}
  end
  fence = by
  if ARGV[6] ~= '' then
    --@ tell_others
    tell_others(KEYS[1], ARGV[1], by, ARGV[6], held[3])
  end
end
--@ head
local plain, fair = ARGV[10] ~= '', ARGV[14]
local head = head_of(KEYS[3], KEYS[1])
local who, place = 0, 0
if not head then
  who = fair and 2 or 1
elseif plain and head == ARGV[8] then
  who = 1
elseif fair and head == ARGV[18] then
  who = 2
end
local next = who == 1 and 10 or 14
local lease, tell = ARGV[next + 1], ARGV[next + 3]
local new, replaced
if who == 0 then
  --@ keep
  --@ tell_rwlock
  --@ free
  free(ARGV[3], KEYS[2], KEYS[3], KEYS[1])
else
  local left = redis.call('PTTL', KEYS[1])
  redis.call('DEL', KEYS[1])
  if who == 2 and head then
    --@ take_turn
    take_turn(KEYS[3], KEYS[5], head)
  end
  --@ grant
  new, replaced = grant(KEYS[1], KEYS[4], ARGV[next], lease, redis.call('TIME'), ARGV[next + 2])
  if left < 0 or left > tonumber(lease) then
    --@ wake
    wake(ARGV[3], KEYS[2], KEYS[3], KEYS[1])
  end
  if tell ~= '' then
    redis.call(ARGV[3], tell, '0')
  end
end
if who == 1 and head and ARGV[9] == '1' then
  place = 1 -- the turn of the plain waiters goes on
elseif head and plain then
  --@ deadline
  --@ crowd
  if who == 1 then
    place = crowd_granted(KEYS[3], KEYS[5], KEYS[1], ARGV[8], ARGV[9])
  else
    place = crowd_joins(KEYS[3], KEYS[5], KEYS[1], ARGV[8], tonumber(ARGV[7]))
  end
end
local first = who ~= 0 and head and place ~= 1 and head_of(KEYS[3], KEYS[1])
-- A waiter of this proxy need not be told: the release of the next holder, which is here, wakes it by name.
if first and string.sub(first, 1, 36) ~= string.sub(ARGV[8], 1, 36) then
  redis.call(ARGV[3], KEYS[2] .. ':' .. first, lease)
end
local odd = replaced or no_queue or 0
if known and who ~= 0 and odd == 0 and place == 0 and not (plain and fair) then
  return -new
end
fence = fence or tonumber(ARGV[2])
if who == 0 then
  return {1, fence, 1, odd, 0, place}
end
return {2, new, fence, odd, who, place}
