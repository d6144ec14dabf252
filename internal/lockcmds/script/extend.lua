-- extend.lua: reset the lease of a lock its owner holds.
--
-- Waiters are woken if it ends earlier now than they had been told.
--
-- Returns  {1, fence, holds}  reset
--          {-1}               the owner is not the holder
--          {-2, fence}        it is, but by a grant with another fence

local lock, channel, queue = unpack(KEYS)
local owner, lease, publish, fence, field = unpack(ARGV)
local held = hold_of(lock, owner)
if held.err then
  return held
elseif not held[1] then
  return {-1}
elseif fence ~= '0' and held[2] ~= fence then
  return {-2, tonumber(held[2] or 0)}
end
local by = field == '' and '' or by_with(held[3], field)
if held[4] == 'read' then
  --@ keep
  --@ tell_rwlock
  --@ free
  --@ longest
  --@ leave_shared
  --@ set_lease
  set_lease(publish, channel, queue, lock, owner, lease)
  put_shared(lock, owner, held[2], held[1], by)
else
  local pttl = redis.call('PTTL', lock)
  redis.call('PEXPIRE', lock, lease) -- first: a Redis out of memory refuses a script that begins with HSET
  if by ~= '' then
    redis.call('HSET', lock, '{by}', by)
  end
  if pttl < 0 or pttl > tonumber(lease) then
    wake(publish, channel, queue, lock)
  end
end
return {1, tonumber(held[2] or 0), tonumber(held[1])}
