-- deepen.lua: the only session of an owner acquires a lock again that it holds.
--
-- It never grants: if the owner has not that grant any more, the session asks under another name. Run again, the script
-- does the same.
--
-- Returns  {1, fence, holds}  acquired
--          {-1}               the owner does not hold the lock by that grant

local lock, channel, queue, timeout = unpack(KEYS)
local owner, fence, publish, holds, lease = unpack(ARGV)
local held = hold_of(lock, owner)
if held.err then
  return held
elseif not held[1] or held[2] ~= fence then
  return {-1}
elseif held[4] == 'read' then
  --@ keep
  --@ tell_rwlock
  --@ free
  --@ longest
  --@ leave_shared
  --@ set_lease
  set_lease(publish, channel, queue, lock, owner, lease)
  put_shared(lock, owner, fence, holds, '')
else
  local pttl = redis.call('PTTL', lock)
  redis.call('HSET', lock, owner, holds)
  redis.call('PEXPIRE', lock, lease)
  if pttl < 0 or pttl > tonumber(lease) then
    wake(publish, channel, queue, lock)
  end
end
return {1, tonumber(fence), tonumber(holds)}
