-- hold_of: what the hash of a lock says of an owner's exclusive hold.
--
-- Returns {holds, fence, the session's last request, mode, the shared hold}, each false if it is missing; or Redis's error.
-- The owner has no such hold in a hash that is held shared, or is a write lock of Redisson, whatever its name.

local function hold_of(lock, owner, field)
  local held = redis.pcall('HMGET', lock, owner, 'fence', field == '' and '{request}' or field, 'mode', '{shared}')
  if not held.err and not (held[2] and held[4] == 'lock') then
    local wrong = no_lock(lock, held[4])
    if wrong then
      return wrong
    end
  end
  if not held.err and held[4] and held[4] ~= 'lock' and not held[2] then
    held[1] = false
  end
  return held
end
