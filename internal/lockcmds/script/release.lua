-- release.lua: release one hold; with the last one free the lock, and wake plain waiters and the first in the queue.
--
-- Any session of a named owner may release one. Of a grant that is over the script finds none.
--
-- KEYS[1]  lock      hash, see lib/hash.lua; exists only while held
-- KEYS[2]  channel   base channel of the lock; a fair waiter listens on channel:place
-- KEYS[3]  queue     list of places of waiters, first to ask at the head
-- KEYS[4]  timeout   the lease of the owner, if it is known to hold the lock shared; see lib/shared.lua
-- ARGV[1]  owner     that releases
-- ARGV[2]  fence     release only the grant with this fence; 0: any
-- ARGV[3]  publish   PUBLISH, or SPUBLISH in a cluster
-- ARGV[4]  holds     of the owner's only session after this; absent: none, and the lease is the watchdog's
-- ARGV[5]  lease_ms  least lease that goes on if holds are left; 0: its TTL stays
-- ARGV[6]  field     the session in braces, for a named owner; empty: the owner has one session
--
-- Returns  fence               released; 0: it was taken without one
--          {1, fence, 1, odd}  the same, and others wait; odd 2: the key of the queue holds something else; else 0
--          {0, holds, fence}   still held; the number of holds of the owner
--          {-1}                the owner is not the holder
--          {-2, fence}         it is, but by a grant with another fence

local lock, fence = KEYS[1], nil
if not ARGV[4] and not KEYS[4] then -- usually it is the last hold, of the grant that the session knows
  local held = redis.pcall('HMGET', lock, ARGV[1], 'fence')
  fence = held[1] and held[2] == ARGV[2] and tonumber(ARGV[2])
elseif not ARGV[4] then
  local timeout = KEYS[4]
  local base = #lock + (string.find(lock, '{', 1, true) and 1 or 3)
  local name = string.sub(timeout, base + 1, -18)
  local held = redis.pcall('HMGET', lock, 'mode', name, '{' .. name .. '}')
  if held[1] == 'read' and held[2] and held[3] == '#' .. ARGV[2] and redis.call('EXISTS', KEYS[3]) == 0 then
    local size, left = redis.call('HLEN', lock), redis.call('PTTL', timeout)
    if size > 13 and left >= 0 then -- a crowd is left, if one of some others is alive for about as long; see lib/leave_shared.lua
      for _, field in ipairs(redis.call('HRANDFIELD', lock, '4')) do
        local other = string.match(field, '^{(.+)}$') or field
        if other ~= name and left <= 2 * redis.call('PTTL', string.sub(timeout, 1, base) .. other .. ':rwlock_timeout:1') then
          redis.call('DEL', timeout)
          redis.call('HDEL', lock, name, '{' .. name .. '}', '{}' .. ARGV[2])
          return tonumber(ARGV[2])
        end
      end
    elseif size == 4 and left >= 0 then
      redis.call(ARGV[3], KEYS[2], '0')
      --@ tell_rwlock
      tell_rwlock(ARGV[3], KEYS[2])
      redis.call('DEL', lock, timeout)
      return tonumber(ARGV[2])
    end
  end
end
if not fence then
  --@ hash
  --@ hold
  --@ lower
  --@ head
  --@ tell_others
  local field = ARGV[6] or ''
  local by, held = lower(lock, ARGV[1], ARGV[2], ARGV[4] or '0', ARGV[5] or '0', field)
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
    leave_shared(ARGV[3], KEYS[2], KEYS[3], lock, ARGV[1])
  end
  if field ~= '' then
    tell_others(lock, ARGV[1], by, field, held[3])
  end
  if held[4] == 'read' then
    return by
  end
  fence = by
end
redis.call(ARGV[3], KEYS[2], '0') -- first: a user that may not publish releases nothing, and the error says so
local theirs = 'redisson_rwlock' .. string.sub(KEYS[2], 23) -- as tell_rwlock does
redis.pcall(ARGV[3], theirs, '1')
redis.pcall(ARGV[3], theirs, '0')
if not redis.pcall('LINDEX', KEYS[3], '0') then
  redis.call('DEL', lock)
  return fence
end

-- The usual way ends here: no function is made on it.
--@ head
--@ keep
keep_for_first(ARGV[3], KEYS[2], KEYS[3], lock)
redis.call('DEL', lock)
return {1, fence, 1, no_queue or 0}
