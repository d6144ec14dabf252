-- mark: a hash that a proxy of an earlier version has written gets its mode.
--
-- The caller has written to the lock before, or can do without: a Redis out of memory refuses a script that begins with HSET.

local function mark(lock, held)
  if held[2] and held[4] ~= 'lock' then
    redis.pcall('HSET', lock, 'mode', 'lock')
  end
end
