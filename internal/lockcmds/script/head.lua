-- head.lua: the first place in the fair queue of a lock.
--
-- KEYS[1]  lock   hash, see lib/hash.lua; exists only while held
-- KEYS[2]  queue  list of places of waiters, first to ask at the head
--
-- Returns  place  the first one; text
--          nil    the queue is empty

return head_of(KEYS[2], KEYS[1]) or false
