-- hold_of: what the hash of a lock says of an owner.
--
-- Returns {holds, fence, the session's last request, mode}, each false if it is missing; or Redis's error. The owner
-- has no holds in a hash that is a read or write lock of Redisson, whatever its name: nothing may be written into it.

local function hold_of(lock, owner, field)
  local held = redis.pcall('HMGET', lock, owner, 'fence', field == '' and '{request}' or field, 'mode')
  if not held.err and held[4] and held[4] ~= 'lock' and not held[2] then
    held[1] = false
  end
  return held
end
