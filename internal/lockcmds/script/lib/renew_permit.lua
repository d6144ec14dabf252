-- renew_permit: the lease of a permit is this long at least. Returns 1; 0: the permit is not held any more.

local function renew_permit(lock, owner, fence, lease, note)
  local timeouts, permits = permits_of(lock)
  local now = milliseconds(redis.call('TIME'))
  local permit, score = permit_with(timeouts, permits, owner, fence, now)
  if not left_of(lock) or not permit then
    return 0
  end
  if score < now + lease then
    redis.call('ZADD', timeouts, now + lease, permit)
    keep(lock, timeouts, permits, now, is_ours(lock, permits))
  end
  if note ~= '' then
    redis.call('HSET', permits, fence, permit .. '{' .. note)
  end
  return 1
end
