-- drop.lua: end a grant that no client relies on, or shorten its lease.
--
-- Unlike a release it may find that there is nothing to do. A grant is known by its owner, whose name does not come
-- back, or also by its fence: so the script may run at any time, and any number of times. Of a named owner it ends the
-- grant that the acquire has made, if no other session has taken part in it. Waiters are woken if the lock is free
-- then, or the lease ends earlier than they had been told.
--
-- Returns  {1}  done
--          {2}  another session takes part in the grant of a named owner
--          {0}  the owner does not hold the lock by that grant

local lock, channel, queue = unpack(KEYS)
local owner, fence, keep, publish, name = unpack(ARGV)
local held = hold_of(lock, owner)
local shared = held[4] == 'read'
if held.err then
  return string.find(held.err, '^WRONGTYPE') and {0} or held
elseif not held[1] or fence ~= '0' and held[2] ~= fence then
  return {0}
elseif name ~= '' and held[3] ~= name then
  return {2}
elseif shared and keep == '0' then
  leave_shared(publish, channel, queue, lock, owner)
elseif shared then
  local left = redis.call('PTTL', timeout_of(lock, name_of(lock, owner)))
  if left > tonumber(keep) then
    settle_shared(publish, channel, queue, lock, left, owner, keep)
  end
elseif keep == '0' then
  free(publish, channel, queue, lock)
else
  local pttl = redis.call('PTTL', lock)
  if pttl < 0 or pttl > tonumber(keep) then
    redis.call('PEXPIRE', lock, keep)
    wake(publish, channel, queue, lock)
  end
end
return {1}
