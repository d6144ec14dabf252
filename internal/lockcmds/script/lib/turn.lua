-- kept_for: the place for which a free lock is kept, for a moment after its release; nil: it is not kept.
--
-- A newcomer would always be faster than a waiter that has to be woken. turn is a key with the name of the lock's base
-- channel, so that it takes no rights of its own; Redisson has no such key. The locks "a" and "{a}" share it (see
-- head_of). A key with a longer TTL, or none, is not ours.

local function kept_for(turn, lock)
  local left = redis.call('PTTL', turn)
  if left < 0 or left > 250 then
    return nil
  end
  local place = redis.pcall('GET', turn)
  local braced = string.match(lock, '^{([^{]+)}$') ~= nil
  if type(place) ~= 'string' or (string.sub(place, -2) == '{}') ~= braced then
    return nil
  end
  return place
end
