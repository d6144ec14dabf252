-- deadlock: whether another shared holder is first in the queue, and waits to hold the lock alone, and so for this one to leave.
--
-- Returns 2: it does; 1: its place has no subscriber. Then it has died, or is about to listen: this one is to ask again soon, without
-- a place, so that the first one never finds the other and just one of them is refused. 0: there is none.

local function deadlock(publish, channel, lock, head, place)
  local owner = head and head ~= place and string.match(head, '^(.-){u}')
  if not owner or redis.call('EXISTS', timeout_of(lock, name_of(lock, owner))) == 0 then
    return 0
  end
  return redis.call(publish, channel .. ':' .. head, '0') > 0 and 2 or 1
end
