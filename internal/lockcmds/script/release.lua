--@ release: release one hold; with the last one free the lock, and wake plain waiters and the first in the queue.
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
    if size > 13 and left >= 0 then -- others are left, if one is alive for about as long; see settle_shared
      for _, field in ipairs(redis.call('HRANDFIELD', lock, '4')) do
        local other = string.match(field, '^{(.+)}$') or field
        local theirs = string.sub(timeout, 1, base) .. other .. ':rwlock_timeout:1'
        if other ~= name and left <= 2 * redis.call('PTTL', theirs) then
          redis.call('DEL', timeout)
          redis.call('HDEL', lock, name, '{' .. name .. '}', '{}' .. fence)
          return tonumber(fence)
        end
      end
    elseif size == 4 and left >= 0 then
      redis.call(publish, channel, '0')
      --@
      tell_rwlock()
      redis.call('DEL', lock, timeout)
      return tonumber(fence)
    end
  end
end
if not over then
  --@
  field = field or ''
  local by, held = lower(owner, fence, holds or '0', lease or '0', field)
  if not by then
    return held
  end
  if held[4] == 'read' then
    --@
    leave_shared(owner)
  end
  if field ~= '' then
    tell_others(owner, by, field, held[3])
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
local head = redis.pcall('LINDEX', queue, '0')
if not head then
  redis.call('DEL', lock)
  return over
end

-- The usual way ends here: no function is made on it.
--@
keep_for_first()
redis.call('DEL', lock)
return {1, over, 1, type(head) == 'table' and 2 or 0}

--@ handover: release, and grant to a waiter of the same proxy in one step, if its turn has come.
--
-- The proxy names the first of its plain waiters, the first of its fair waiters, or both. The lock goes to the one
-- whose place is first in the queue. If the queue is empty, it goes to the fair one, which has lost its place, or to
-- the plain one. If the first place is another waiter's, this is a plain release. The plain waiters take a place when
-- other waiters have one. A lock that is handed over is never free, so no waiter is woken, unless its lease ends
-- earlier now than the waiters were told.
--
-- Run again, the script finds another owner, or changes nothing. A waiter that was granted the lock and asks for it
-- finds its grant.
--
-- Returns  {2, new fence, fence, odd, who, place}  released, and granted to who: 1 the plain waiter, 2 the fair one
--          {1, fence, 1, odd, 0, place}            released; fence 0: it was taken without one
--          {0, holds, fence}                       still held; the number of holds left
--          {-1}                                    the owner is not the holder
--          {-2, fence}                             it is, but by a grant with another fence
--          odd: 1 the counter held no fence; 2 the key of the queue holds something else; else 0
--          place: of the plain waiters, 0 not in the queue, 1 at its head, 2 behind others
-- The first may be -new fence: the fence is that of the call, one waiter is named, odd and place are 0.

local lock, channel, queue, counter, deadlines = unpack(KEYS)
local owner, fence, publish, holds, lease, field, wait, crowd, stays,
  plain_owner, plain_lease, plain_name, plain_tell,
  fair_owner, fair_lease, fair_name, fair_tell, fair_place = unpack(ARGV)

local known, over = false, tonumber(fence)
if holds == '0' and field == '' then -- usually it is the last hold, of the grant that the session knows
  local held = redis.pcall('HMGET', lock, owner, 'fence')
  known = held[1] and held[2] == fence
end
if not known then
  --@
  local by, held = lower(owner, fence, holds, lease, field)
  if not by then
    return held
  elseif held[4] == 'read' then
    return {-1}
  end
  over = by
  if field ~= '' then
    --@
    tell_others(owner, by, field, held[3])
  end
end
--@
local plain, fair = plain_owner ~= '', fair_owner ~= nil
local head, no_queue = head_of()
--@ turn
local to, lease, name, tell = fair_owner, fair_lease, fair_name, fair_tell
if who == 1 then
  to, lease, name, tell = plain_owner, plain_lease, plain_name, plain_tell
end
local new, replaced
if who == 0 then
  --@
  free()
else
  local left = redis.call('PTTL', lock)
  redis.call('DEL', lock)
  if who == 2 and head then
    --@
    take_turn(head)
  end
  --@
  new, replaced = grant(to, lease, redis.call('TIME'), name)
  if left < 0 or left > tonumber(lease) then
    --@
    wake()
  end
  if tell ~= '' then
    redis.call(publish, tell, '0')
  end
end
--@ crowd_place
local first = who ~= 0 and head and place ~= 1 and head_of()
-- A waiter of this proxy need not be told: the release of the next holder, which is here, wakes it by name.
if first and string.sub(first, 1, 36) ~= string.sub(crowd, 1, 36) then
  redis.call(publish, channel .. ':' .. first, lease)
end
local odd = replaced or no_queue or 0
if known and who ~= 0 and odd == 0 and place == 0 and not (plain and fair) then
  return -new
end
if who == 0 then
  return {1, over, 1, odd, 0, place}
end
return {2, new, over, odd, who, place}
