-- info.lua: who holds a lock.
--
-- KEYS[1]  lock   hash {owner: holds, fence: n}; exists only while held
-- KEYS[2]  queue  list of places of waiters, first to ask at the head
--
-- Returns  {owner, holds, pttl_ms, fence, fair_waiters}  held; the owner is text; fence 0: it was taken without one
--          {}                                            free

local held = holder(KEYS[1])
if #held == 0 then
  return held
end
local waiters = redis.pcall('LLEN', KEYS[2])
return {held[1], held[2], redis.call('PTTL', KEYS[1]), held[3], type(waiters) == 'number' and waiters or 0}
