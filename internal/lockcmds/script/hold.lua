--@ extend: reset the lease of a lock its owner holds.
--
-- Waiters are woken if it ends earlier now than they had been told.
--
-- Returns  {1, fence, holds}  reset
--          {-1}               the owner is not the holder
--          {-2, fence}        it is, but by a grant with another fence

local lock, channel, queue = unpack(KEYS)
local owner, lease, publish, fence, field = unpack(ARGV)
--@
local held = hold_of(owner)
if held.err then
  return held
elseif not held[1] then
  return {-1}
elseif fence ~= '0' and held[2] ~= fence then
  return {-2, tonumber(held[2] or 0)}
end
local by = field == '' and '' or by_with(held[3], field)
if held[4] == 'read' then
  --@
  set_lease(owner, lease)
  put_shared(owner, held[2], held[1], by)
else
  --@
  lease_anew(lease) -- first: a Redis out of memory refuses a script that begins with HSET
  if by ~= '' then
    redis.call('HSET', lock, '{by}', by)
  end
end
return {1, tonumber(held[2] or 0), tonumber(held[1])}

--@ renew: renew leases that are still ours, a batch in one call.
--
-- A lease that goes on for longer stays: another proxy may have promised it to the same owner.
-- Run again the script does the same. It writes no counts, and tells how they are.
-- A key that is no lock hash counts as not ours: one bad key must not cost the others their lease.
--
-- If shared holds are renewed, the keys are pairs: a lock and the lease of the hold. Redis refuses the call while only
-- one of them has moved to another server. Without its lease a hold would count as over.
--
-- Returns  {holds or 0, ...}  for each lock: renewed, how many holds its owner has; or 0, not ours any more

local lock, timeout
--@
local renewed, rows = {}, #ARGV / 4
local width = #KEYS / rows
for i = 1, rows do
  lock, timeout = unpack(KEYS, width * (i - 1) + 1, width * i)
  local owner, fence, lease, note = unpack(ARGV, 4 * i - 3, 4 * i)
  local held = hold_of(owner)
  if not held.err and held[1] and (fence == '0' or held[2] == fence) then
    renewed[i] = math.max(tonumber(held[1]) or 1, 1)
    if held[4] == 'read' then
      --@
      lengthen_shared(owner, lease)
      if note ~= '' and timeout then
        redis.call('SET', timeout, note, 'XX', 'KEEPTTL')
      end
    else
      lengthen(lock, lease)
      if note ~= '' then
        redis.call('HSET', lock, '{note}', note)
      end
    end
  else
    renewed[i] = 0
  end
end
return renewed

--@ bound: give a held lock a TTL again that a client has removed, as by PERSIST.
--
-- Without a TTL it would not end with its holder. A holder that is alive renews it before that ends. A hash without the
-- mode and the fence of a lock of ours is an application's, or Redisson's. Run again the script changes nothing.
--
-- Returns  {1}  the lock ends within that time, if it is not renewed
--          {0}  nothing was done

local lock = unpack(KEYS)
local lease = unpack(ARGV)
--@
local held = redis.pcall('HMGET', lock, 'mode', 'fence')
local ours = held[1] == 'lock' and held[2] or held[1] == 'read' and shares_ours()
if not ours or redis.call('PTTL', lock) ~= -1 then
  return {0}
end
redis.call('PEXPIRE', lock, lease)
return {1}

--@ prove: tell whether a grant is here, by a write that changes nothing.
--
-- WAIT counts the replicas that have the last write of its connection. A WAIT behind this script on the same connection
-- counts those that have the grant: the grant was there before the write. Run again the script does the same.
--
-- Returns  {1}  the grant is here
--          {0}  it is not: the lease has ended, or another server was promoted without it
--
-- The lease of a shared hold is a key for its slot and rights alone.

local lock, timeout = unpack(KEYS)
local owner, fence, holds = unpack(ARGV)
--@
local held = hold_of(owner)
if held.err or not held[1] or held[2] ~= fence or (tonumber(held[1]) or 0) < tonumber(holds) then
  return {0}
end
if held[4] == 'read' then
  --@
  put_shared(owner, held[2], held[1], held[3])
else
  redis.call('HSET', lock, 'fence', fence)
end
return {1}

--@ drop: end a grant that no client relies on, or shorten its lease.
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
--@
local held = hold_of(owner)
local shared = held[4] == 'read'
if held.err then
  return string.find(held.err, '^WRONGTYPE') and {0} or held
elseif not held[1] or fence ~= '0' and held[2] ~= fence then
  return {0}
elseif name ~= '' and held[3] ~= name then
  return {2}
elseif shared and keep == '0' then
  --@
  leave_shared(owner)
elseif shared then
  --@
  local left = redis.call('PTTL', timeout_of(name_of(owner)))
  if left > tonumber(keep) then
    settle_shared(left, owner, keep)
  end
elseif keep == '0' then
  --@
  free()
else
  --@
  local pttl = redis.call('PTTL', lock)
  if pttl < 0 or pttl > tonumber(keep) then
    redis.call('PEXPIRE', lock, keep)
    wake()
  end
end
return {1}
