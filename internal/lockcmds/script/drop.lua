-- drop.lua: a session's part in a grant is over, or it was not told of it: release its holds at once, or shorten the
-- lease.
--
-- Unlike a release it may find that there is nothing to do. Waiters are woken if the lock is free then, or the lease
-- ends earlier than they had been told. If the owner has other holds, the lease stays. Run again, the script changes
-- nothing. Overtaken by a later call of an owner's only session, it changes nothing either: that call has written the
-- holds. Those of a named owner are released all the same. If another proxy's session of such an owner may have set the
-- lease, its end is not the one that this proxy knows: the last hold stays for that session, until the lease ends.
--
-- KEYS[1]  lock      hash, see lib/hash.lua; exists only while held
-- KEYS[2]  channel   base channel of the lock; a fair waiter listens on channel:place
-- KEYS[3]  queue     list of places of waiters, first to ask at the head
-- KEYS[4]  timeout   the lease of the owner, if it holds the lock shared
-- ARGV[1]  owner     that held it
-- ARGV[2]  fence     only the grant with this fence; 0: any
-- ARGV[3]  holds     how many the owner's only session keeps
-- ARGV[4]  publish   PUBLISH, or SPUBLISH in a cluster
-- ARGV[5]  request   number of this call, larger than those of earlier calls of the session
-- ARGV[6]  grace_ms  the most that may be left of the lease; 0: release
-- ARGV[7]  field     of the session, for a named owner; empty: the owner has one session
-- ARGV[8]  lease_ms  to which the lease is set if holds are left; for a named owner it is only made longer; 0: its
--                    TTL stays
-- ARGV[9]  remember  1: the field stays, or is made, so that copies of earlier calls are known; 0: it goes
-- ARGV[10] less      how many holds the session of a named owner has acquired and not released
-- ARGV[11] acquire   those are the hold of this call, if it is the last that was applied of the session; 0: of any
-- ARGV[12] copy      1: an earlier copy of this call may have been executed; 0: none was
-- ARGV[13] ended     1: its proxy's clock says that the lease has ended; 0: it goes on
--
-- Returns  {1}  the lock is released, or the lease is short enough now
--          {2}  the grant goes on: the owner has other holds, or this call or a later one was executed before
--          {0}  the owner does not hold the lock by that grant

local lock, owner, field = KEYS[1], ARGV[1], ARGV[7]
local held = hold_of(lock, owner, field)
local shared = held[4] == 'read'
if held.err then
  return string.find(held.err, '^WRONGTYPE') and {0} or held
end
if not held[1] or ARGV[2] ~= '0' and held[2] ~= ARGV[2] then
  return {0}
end
local sum, last, request = tonumber(held[1]) or 0, tonumber(held[3] or 0) or 0, tonumber(ARGV[5])
if last == request or last > request and (field == '' or ARGV[12] == '1') then
  return {2}
end
local rest = sum
if field == '' then
  rest = tonumber(ARGV[3])
elseif held[3] and (ARGV[11] == '0' or last == tonumber(ARGV[11])) then
  rest = sum - tonumber(ARGV[10])
  if rest < 1 and ARGV[13] == '1' then
    --@ elsewhere
    local sessions = held[4] == 'read' and string.gsub('{' .. held[5], ' ', '{') or table.concat(redis.call('HKEYS', lock))
    rest = elsewhere(field, sessions) and 1 or rest
  end
end
if rest > 0 and shared then
  local keeps = field == '' and rest or ARGV[6] == '0' and rest or sum
  local last_request = (field == '' or last < request) and ARGV[5] or held[3]
  if field ~= '' and ARGV[9] ~= '1' then
    last_request = nil
  end
  put_shared(lock, owner, held, keeps, field, last_request)
  if ARGV[8] ~= '0' then
    lengthen_shared(lock, owner, ARGV[8])
  end
  return {2}
elseif rest > 0 then
  if field == '' then
    redis.call('HSET', lock, owner, rest, '{request}', ARGV[5])
  else
    if ARGV[9] == '1' then
      redis.call('HSET', lock, field, last < request and ARGV[5] or held[3])
    else
      redis.call('HDEL', lock, field)
    end
    if ARGV[6] == '0' and rest < sum then
      redis.call('HSET', lock, owner, rest)
    end
  end
  if ARGV[8] ~= '0' and field == '' and redis.call('PTTL', lock) > tonumber(ARGV[8]) then
    redis.call('PEXPIRE', lock, ARGV[8]) -- no other session can have set the longer one
    wake(ARGV[4], KEYS[2], KEYS[3], lock)
  elseif ARGV[8] ~= '0' then
    lengthen(lock, ARGV[8])
  end
  return {2}
end
if shared and ARGV[6] == '0' then
  leave_shared(ARGV[4], KEYS[2], KEYS[3], lock, owner)
  return {1}
elseif shared then
  local left = redis.call('PTTL', timeout_of(lock, name_of(lock, owner)))
  if left > tonumber(ARGV[6]) then
    settle_shared(ARGV[4], KEYS[2], KEYS[3], lock, left, owner, ARGV[6])
  end
  put_shared(lock, owner, held, held[1], field, last < request and ARGV[5] or held[3])
  return {1}
end
if ARGV[6] == '0' then
  free(ARGV[4], KEYS[2], KEYS[3], lock)
  return {1}
end
local pttl = redis.call('PTTL', lock)
if pttl < 0 or pttl > tonumber(ARGV[6]) then
  redis.call('PEXPIRE', lock, ARGV[6])
  wake(ARGV[4], KEYS[2], KEYS[3], lock)
end
-- A late copy of an earlier call must not make the lease longer again. Without memory Redis refuses the number alone.
redis.pcall('HSET', lock, field == '' and '{request}' or field, last < request and ARGV[5] or held[3])
return {1}
