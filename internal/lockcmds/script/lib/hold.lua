-- hold_of: what the hash of a lock says of an owner's hold, exclusive or shared.
--
-- Returns {holds, fence, what {by} is, mode}, each false if it is missing, and more as shared_hold does if the mode
-- is read; or Redis's error. The owner has no hold in a write lock of Redisson, whatever its name.

--@ shared
local function hold_of(lock, owner)
  local held = redis.pcall('HMGET', lock, owner, 'fence', '{by}', 'mode')
  if held[4] == 'read' then
    return shared_hold(lock, owner)
  end
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

-- by_with is what {by} is when a session has taken part in the grant of a named owner. field is the acquire of the
-- session's own part, or the session's name in braces, if it has none.
local function by_with(by, field)
  return by == field and by or '*'
end
