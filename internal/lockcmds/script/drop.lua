-- drop.lua: a session's part in a grant is over, or it was not told of it: release its holds at once, or shorten the
-- lease; or only its field is to go, and the holds go on as no known session's.
--
-- Unlike a release it takes nothing from others, and may find that there is nothing to do. Waiters are woken if the
-- lock is free then, or the lease ends earlier than they had been told. If others hold the lock for the same owner,
-- the lease stays. Run again, or overtaken by a later call of the session, the script changes nothing, but for holds
-- that were spared: each run compares their lease anew.
--
-- KEYS[1]  lock      hash, see lib/hash.lua; exists only while held
-- KEYS[2]  channel   base channel of the lock; a fair waiter listens on channel:place
-- KEYS[3]  queue     list of places of waiters, first to ask at the head
-- ARGV[1]  owner     that held it
-- ARGV[2]  fence     only the grant with this fence; 0: any
-- ARGV[3]  holds     how many holds the session keeps
-- ARGV[4]  publish   PUBLISH, or SPUBLISH in a cluster
-- ARGV[5]  request   number of this call, larger than those of earlier calls of the session
-- ARGV[6]  grace_ms  the most that may be left of the lease; 0: release; negative: all, only the field goes
-- ARGV[7]  field     of the session, for a named owner; empty: the owner has one session
-- ARGV[8]  lease_ms  to which the lease is set if holds are left; for a named owner it is only made longer; 0: its
--                    TTL stays
-- ARGV[9]  remember  1: the field stays, or is made, although the session has no holds then; 0: it goes
-- ARGV[10] spare_ms  if more than this is left of the lease, the owner's last holds stay, and end with it; 0: they are
--                    released
--
-- Returns  {1}  the lock is released, or the lease is short enough now
--          {2}  the grant goes on: the owner has other holds, its last ones are spared, only the field has gone, or
--               this call or a later one was executed before
--          {0}  the owner does not hold the lock by that grant

local lock, owner, field, keep = KEYS[1], ARGV[1], ARGV[7], tonumber(ARGV[3])
local held = hold_of(lock, owner, field)
if held.err then
  return held
end
if not held[1] or ARGV[2] ~= '0' and held[2] ~= ARGV[2] then
  return {0}
end
if field ~= '' and not held[3] then
  if ARGV[9] == '1' and ARGV[6] == '0' then -- the acquire that is rolled back may come later: then its number is old
    redis.call('HSET', lock, field, '0 ' .. ARGV[5] .. ' 0')
  end
  return {2}
end
local sum, ours, mine, last, taken = tonumber(held[1]) or 0, tonumber(held[4] or 0) or 0, nil, nil, 0
if field == '' then
  mine, last = sum, tonumber(held[3] or 0) or 0
else
  mine, last, taken = field_of(held[3])
end
local alone = tonumber(ARGV[6]) < 0 -- also if the release with that number has written the field
if last > tonumber(ARGV[5]) or last == tonumber(ARGV[5]) and not alone then
  return {2}
end
local less = math.max(mine - taken, 0) - math.max(keep - taken, 0) -- as in lower: may be negative
if alone then
  redis.call('HDEL', lock, field) -- first: a Redis out of memory refuses a script that begins with HSET
  if less > 0 then
    redis.call('HSET', lock, '{ours}', ours - less)
  end
  return {2}
end
local rest = sum - less
if field ~= '' then
  rest = math.max(rest, ours - less)
end
if rest > 0 then
  if ARGV[6] == '0' then
    if field == '' then
      redis.call('HSET', lock, owner, rest, '{request}', ARGV[5])
    else
      redis.call('HSET', lock, owner, rest, '{ours}', ours - less)
      if keep > 0 or ARGV[9] == '1' then
        redis.call('HSET', lock, field, keep .. ' ' .. ARGV[5] .. ' ' .. math.min(taken, keep))
      else
        redis.call('HDEL', lock, field)
      end
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
if ARGV[10] ~= '0' and redis.call('PTTL', lock) > tonumber(ARGV[10]) then
  return {2}
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
if field == '' then
  redis.pcall('HSET', lock, '{request}', ARGV[5])
else
  redis.pcall('HSET', lock, field, mine .. ' ' .. ARGV[5] .. ' ' .. taken)
end
return {1}
