-- release.lua: release one hold; with the last one free the lock, and wake plain waiters and the first in the queue.
--
-- Any session of a named owner may release one. Of a grant that is over the script finds none.
--
-- Returns  fence               released; 0: it was taken without one
--          {1, fence, 1, odd}  the same, and others wait; odd 2: the key of the queue holds something else; else 0
--          {0, holds, fence}   still held; the number of holds of the owner
--          {-1}                the owner is not the holder
--          {-2, fence}         it is, but by a grant with another fence

local lock, channel, queue, timeout = unpack(KEYS)
local owner, fence, publish, holds, lease, field = unpack(ARGV)

local over -- the fence of a grant that ends
if not holds and not timeout then -- usually it is the last hold, of the grant that the session knows
  local held = redis.pcall('HMGET', lock, owner, 'fence')
  over = held[1] and held[2] == fence and tonumber(fence)
elseif not holds then
  local base = #lock + (string.find(lock, '{', 1, true) and 1 or 3)
  local name = string.sub(timeout, base + 1, -18)
  local held = redis.pcall('HMGET', lock, 'mode', name, '{' .. name .. '}')
  if held[1] == 'read' and held[2] and held[3] == '#' .. fence and redis.call('EXISTS', queue) == 0 then
    local size, left = redis.call('HLEN', lock), redis.call('PTTL', timeout)
    if size > 13 and left >= 0 then -- a crowd is left, if one of some others is alive for about as long; see lib/leave_shared.lua
      for _, field in ipairs(redis.call('HRANDFIELD', lock, '4')) do
        local other = string.match(field, '^{(.+)}$') or field
        if other ~= name and left <= 2 * redis.call('PTTL', string.sub(timeout, 1, base) .. other .. ':rwlock_timeout:1') then
          redis.call('DEL', timeout)
          redis.call('HDEL', lock, name, '{' .. name .. '}', '{}' .. fence)
          return tonumber(fence)
        end
      end
    elseif size == 4 and left >= 0 then
      redis.call(publish, channel, '0')
      --@ tell_rwlock
      tell_rwlock(publish, channel)
      redis.call('DEL', lock, timeout)
      return tonumber(fence)
    end
  end
end
if not over then
  --@ hash
  --@ hold
  --@ lower
  --@ head
  --@ tell_others
  field = field or ''
  local by, held = lower(lock, owner, fence, holds or '0', lease or '0', field)
  if not by then
    return held
  end
  if held[4] == 'read' then
    --@ keep
    --@ tell_rwlock
    --@ free
    --@ wake
    --@ longest
    --@ leave_shared
    leave_shared(publish, channel, queue, lock, owner)
  end
  if field ~= '' then
    tell_others(lock, owner, by, field, held[3])
  end
  if held[4] == 'read' then
    return by
  end
  over = by
end
redis.call(publish, channel, '0') -- first: a user that may not publish releases nothing, and the error says so
local theirs = 'redisson_rwlock' .. string.sub(channel, 23) -- as tell_rwlock does
redis.pcall(publish, theirs, '1')
redis.pcall(publish, theirs, '0')
if not redis.pcall('LINDEX', queue, '0') then
  redis.call('DEL', lock)
  return over
end

-- The usual way ends here: no function is made on it.
--@ head
--@ keep
keep_for_first(publish, channel, queue, lock)
redis.call('DEL', lock)
return {1, over, 1, no_queue or 0}
