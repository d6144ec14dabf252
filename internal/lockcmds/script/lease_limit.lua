-- lease_limit.lua: end a permit, or set the end of its lease.
--
-- A permit that another session of its named owner has extended is not the session's own any more: a drop leaves it.
-- Waiters are woken if a permit is left, or its lease ends earlier than they had been told.
--
-- Returns  {1, fence, 1}     done
--          {1, fence, 1, 0}  the same, and the lock is free, and others wait
--          {-1}              the owner has no such permit

local lock, timeouts, permits, owners, channel, queue = unpack(KEYS)
local owner, fence, permit, lease, drop, by, publish = unpack(ARGV)
lease = tonumber(lease)
--@ permits
local left, now = left_of(), milliseconds(redis.call('TIME'))
if type(left) == 'table' and not (drop == '1' and string.find(left.err, '^WRONGTYPE')) then
  return left
elseif type(left) ~= 'string' then
  return {-1}
end
local ends, own
if permit ~= '' then
  permit, fence, ends, own = held_permit(permit, now)
elseif fence ~= '0' then
  permit, fence, ends, own = permit_with(fence, now)
else
  permit = nil
  repeat
    local oldest = redis.call('ZRANGEBYLEX', owners, '[' .. owner .. '{', '(' .. owner .. '|', 'LIMIT', 0, 1)[1]
    if oldest then
      permit, fence, ends, own = permit_with(string.sub(oldest, #owner + 2), now)
    end
    if oldest and not permit then -- a client of Redisson has removed it, because its lease had ended
      redis.call('ZREM', owners, oldest)
    end
  until permit or not oldest
end
if not permit or owner_of_permit(permit) ~= owner or drop == '1' and not own then
  return {-1}
end
local elsewhere, at = by ~= '' and not string.find(permit, '#' .. by, 1, true), now + lease
if lease == 0 then
  --@ end_permits
  local waited = end_permits(publish, channel, queue, {permit}, now)
  if elsewhere then -- its proxy, which may be another one, would find a loss; the text is that of Forced.Message
    redis.pcall('PUBLISH', 'lockproxy:forced', '-' .. fence .. ' ' .. redis.sha1hex(owner .. ' ' .. fence) .. ' ' .. lock)
  end
  return {1, tonumber(fence), 1, waited and 0 or nil}
elseif drop ~= '1' or at < ends then
  redis.call('ZADD', timeouts, at, permit)
  if elsewhere then
    redis.call('HSET', permits, permit, '#' .. fence .. '*')
  end
  keep(is_ours())
  if at < ends then
    wake(publish, channel, queue, lock)
  end
end
return {1, tonumber(fence), 1}
