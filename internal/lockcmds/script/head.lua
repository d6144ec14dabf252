-- head.lua: the first place in the fair queue of a lock.
--
-- Returns  place  the first one; text
--          nil    the queue is empty

local lock, queue = unpack(KEYS)
return head_of(queue, lock) or false
