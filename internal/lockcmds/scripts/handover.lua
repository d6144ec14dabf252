-- handover.lua: release, and grant to a waiter of the same proxy in one step, if it is the next in order.
--
-- The lock is never free, so nobody is woken, unless its lease ends earlier now than they were told. A plain waiter is
-- next if no fair waiter is queued, a fair one if it is the head of the queue or nobody is queued. Else this is a plain
-- release.
--
-- KEYS[1]  lock           hash {owner: holds, fence: n}; exists only while held
-- KEYS[2]  channel        base channel of the lock; a fair waiter listens on channel:place
-- KEYS[3]  queue          list of places of waiters, first to ask at the head
-- KEYS[4]  fence          counter of this hash slot; never expires, never goes back
-- KEYS[5]  deadlines      zset place -> epoch ms after which it may be dropped
-- ARGV[1]  owner          who releases
-- ARGV[2]  lease_ms       least lease that goes on if holds are left; 0: its TTL stays
-- ARGV[3]  fence          release only the grant with this fence; 0: any
-- ARGV[4]  publish        PUBLISH or SPUBLISH
-- ARGV[5]  next_owner     who gets the lock, another owner
-- ARGV[6]  next_lease_ms  its lease length, > 0
-- ARGV[7]  next_place     of a fair waiter, its name in the queue; empty: it is a plain one
-- ARGV[8]  tell           channel on which others who wait for next_owner are told; empty: nobody does
--
-- Returns  {2, new fence, fence}  released, and granted to next_owner
--          fence                  released; 0: it was taken without one
--          {0, holds, fence}      still held, with so many holds left
--          {-1}                   the owner is not the holder
--          {-2, fence}            it is, but by a grant with another fence
-- The first two may be {2, new fence, fence, odd} and {1, fence, 1, odd}; odd 1: the counter held no fence; 2: the key
-- of the queue holds something else.

local fence, answer = give_back(KEYS[1], ARGV[1], ARGV[2], ARGV[3])
if answer then
  return answer
end
local left = redis.call('PTTL', KEYS[1])
redis.call('DEL', KEYS[1])
local head = head_of(KEYS[3], KEYS[1])
if head and head ~= ARGV[7] then
  wake(ARGV[4], KEYS[2], KEYS[3], KEYS[1])
  return released(fence)
end
if head then
  take_turn(KEYS[3], KEYS[5], head)
end
local new, replaced = grant(KEYS[1], KEYS[4], ARGV[5], '1', ARGV[6], redis.call('TIME'))
if left < 0 or left > tonumber(ARGV[6]) then
  wake(ARGV[4], KEYS[2], KEYS[3], KEYS[1])
end
if ARGV[8] ~= '' then
  redis.call(ARGV[4], ARGV[8], '0')
end
return {2, new, fence, replaced or no_queue}
