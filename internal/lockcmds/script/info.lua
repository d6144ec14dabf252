-- info.lua: the holder of a lock.
--
-- The places that plain waiters share, one for each proxy, are no fair waiters. Beyond 1,000 places they count all the
-- same, so that the question stays cheap. now is that of lib/now.lua.
--
-- KEYS[1]  lock   hash, see lib/hash.lua; exists only while held
-- KEYS[2]  queue  list of places of waiters, first to ask at the head
--
-- Returns  {owner, holds, pttl_ms, fence, fair_waiters, now}  held; the owner is text; fence 0: taken without one
--          {}                                                 free

local held = holder(KEYS[1])
if #held == 0 then
  return held
end
local waiters = redis.pcall('LLEN', KEYS[2])
if type(waiters) ~= 'number' then
  waiters = 0 -- the key holds something else
elseif waiters <= 1000 then
  for _, place in ipairs(redis.call('LRANGE', KEYS[2], 0, -1)) do
    if string.sub(place, 37, 43) == ':plain-' then
      waiters = waiters - 1
    end
  end
end
return {held[1], held[2], redis.call('PTTL', KEYS[1]), held[3], waiters, now()}
