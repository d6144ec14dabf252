-- release.lua: give back one hold; with the last one free the lock and wake plain waiters and the fair head.
--
-- KEYS[1]  lock      hash {owner: holds, fence: n}; exists only while held
-- KEYS[2]  channel   base channel of the lock; a fair waiter listens on channel:place
-- KEYS[3]  queue     list of places of waiters, first to ask at the head
-- ARGV[1]  owner     who releases
-- ARGV[2]  lease_ms  least lease that goes on if holds are left; 0: its TTL stays
-- ARGV[3]  fence     release only the grant with this fence; 0: any
-- ARGV[4]  publish   PUBLISH
--
-- Returns  fence              released; 0: it was taken without one
--          {0, holds, fence}  still held, with so many holds left
--          {-1}               the owner is not the holder
--          {-2, fence}        it is, but by a grant with another fence
-- The first may be {1, fence, 1, 2}: the key of the queue holds something else.

local fence, answer = give_back(KEYS[1], ARGV[1], ARGV[2], ARGV[3])
if answer then
  return answer
end
free(ARGV[4], KEYS[2], KEYS[3], KEYS[1])
return no_queue and {1, fence, 1, no_queue} or fence
