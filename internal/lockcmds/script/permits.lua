--@ acquire_limit: take a permit of a lock that at most n hold at the same time.
--
-- Each acquire takes a permit of its own. While others have permits, one is taken only if no other place is first in
-- the fair queue. So a waiter with a smaller n is not overtaken by one newcomer after the other. An attempt that finds
-- its own permit has been granted. A place in the queue is not taken twice.
--
-- Returns  {1, fence, 1, odd, place, more, rest_ms}  taken; odd 1: the counter held no fence; more 2: another permit is
--                                                    left; rest_ms of the lease that ends first
--          {0, pttl_ms, place, form}                 not taken; pttl -2: free, but kept for another; -3: a permit is
--                                                    left, but others are first; form 2: a client of Redisson's may
--                                                    have a permit, or give permits to the string; or absent
--          place: of plain waiters, 0 not in the queue, 1 at its head, 2 behind others; of a fair one as in attempt

local lock, timeouts, permits, owners, channel, queue, deadlines, counter = unpack(KEYS)
local permit, lease, limit, named, wait, place, way, stays, enqueue, publish = unpack(ARGV)
lease, limit, wait = tonumber(lease), tonumber(limit), tonumber(wait)
--@
local left, time = left_of(), redis.call('TIME')
if type(left) == 'table' then
  return left
elseif redis.call('HEXISTS', permits, 'mode') == 1 then -- a lock of that name
  return redis.pcall('GET', permits) -- WRONGTYPE
end
if not left and redis.call('HGET', permits, 'made') == '1' then -- the string was deleted, and its permits with it
  local fields = redis.call('HGETALL', permits)
  for from = 1, #fields, 1000 do -- the zset stays: the lock "{a}" may have permits in it, too
    redis.call('ZREM', timeouts, unpack(fields, from, math.min(from + 999, #fields)))
  end
  redis.call('DEL', permits, owners)
end
local now, live, ours, pttl, form = milliseconds(time), 0, true, -2, nil

-- settled is where the place of the waiter is after a permit was taken.
local function settled()
  if way == 'fair' and type(redis.pcall('ZSCORE', deadlines, place)) == 'string' then
    take_turn(place)
  elseif way == 'crowd' then
    --@
    return crowd_granted(place, stays)
  end
  return 0
end

if left then
  local _, fence, ends = held_permit(permit, now)
  if fence then
    if ends < now + lease then
      redis.call('ZADD', timeouts, now + lease, permit)
      keep(is_ours())
    end
    return {1, tonumber(fence), 1, 0, settled(), 0, first_end(now)}
  end
end
local ended = redis.call('ZRANGEBYSCORE', timeouts, '-inf', now - 1, 'LIMIT', 0, 1000)
if #ended > 0 then
  local n = remove_permits(ended)
  if left then
    leave_more(n)
    left = left_of()
  end
end
live, ours = held_permits(now), not left or is_ours()
if live >= limit then
  pttl = rest_until(redis.call('ZRANGE', timeouts, live - limit, live - limit, 'WITHSCORES')[2], now)
elseif not ours and tonumber(left) <= 0 then
  pttl = live == 0 and -1 or first_end(now)
end

local head, at = head_of(), 0
if pttl == -2 then
  local turn = live == 0 and kept_for()
  if not turn or turn == place then
    if head and head ~= place and way ~= '' then
      --@
      head = drop_late(place, now, wait)
    end
    if not head or head == place or live == 0 and way ~= 'fair' then
      if turn then
        redis.call('DEL', channel)
      end
      --@
      local fence, replaced, kept = take_permit(time, permit, named, lease, limit, live, left, ours)
      at = settled()
      local next = head and head_of()
      if next and next ~= place then -- its limit may be larger
        redis.call(publish, channel .. ':' .. next, '0')
      end
      return {1, fence, 1, replaced or 0, at, kept > 0 and live + 1 < limit and 2 or 0, first_end(now)}
    end
    pttl = live == 0 and -2 or -3
  end
end
if live > 0 and (not ours or redis.call('HLEN', permits) ~= 2 * redis.call('ZCARD', timeouts) + 1) then
  form = 2
end
if way == 'fair' and enqueue == '1' and head ~= place then
  --@
  line_up(head, place, now, pttl, wait)
  head = head or place
elseif way == 'crowd' and (enqueue == '1' or head) then
  --@
  at = crowd_joins(place, now, wait)
end
if way == 'fair' and head == place and form then
  at = 1
end
return {0, pttl, at, form}

--@ lease_limit: end a permit, or set the end of its lease.
--
-- A permit that another session of its named owner has extended is not the session's own any more: a drop leaves it.
-- Waiters are woken if a permit is left, or its lease ends earlier than they had been told.
--
-- Returns  {1, fence, 1}     done
--          {1, fence, 1, 0}  the same, and the lock is free, and others wait
--          {-1}              the owner has no such permit

local lock, timeouts, permits, owners, channel, queue = unpack(KEYS)
local owner, fence, permit, lease, drop, by, publish = unpack(ARGV)
lease = tonumber(lease)
--@
local left, now = left_of(), milliseconds(redis.call('TIME'))
if type(left) == 'table' and not (drop == '1' and string.find(left.err, '^WRONGTYPE')) then
  return left
elseif type(left) ~= 'string' then
  return {-1}
end
local ends, own
if permit ~= '' then
  permit, fence, ends, own = held_permit(permit, now)
elseif fence ~= '0' then
  permit, fence, ends, own = permit_with(fence, now)
else
  permit = nil
  repeat
    local oldest = redis.call('ZRANGEBYLEX', owners, '[' .. owner .. '{', '(' .. owner .. '|', 'LIMIT', 0, 1)[1]
    if oldest then
      permit, fence, ends, own = permit_with(string.sub(oldest, #owner + 2), now)
    end
    if oldest and not permit then -- a client of Redisson has removed it, because its lease had ended
      redis.call('ZREM', owners, oldest)
    end
  until permit or not oldest
end
if not permit or owner_of_permit(permit) ~= owner or drop == '1' and not own then
  return {-1}
end
local elsewhere, at = by ~= '' and not string.find(permit, '#' .. by, 1, true), now + lease
if lease == 0 then
  --@
  local waited = end_permits({permit}, now)
  if elsewhere then -- its proxy, which may be another one, would find a loss; the text is that of Forced.Message
    local proof = redis.sha1hex(owner .. ' ' .. fence)
    redis.pcall('PUBLISH', 'lockproxy:forced', '-' .. fence .. ' ' .. proof .. ' ' .. lock)
  end
  return {1, tonumber(fence), 1, waited and 0 or nil}
elseif drop ~= '1' or at < ends then
  redis.call('ZADD', timeouts, at, permit)
  if elsewhere then
    redis.call('HSET', permits, permit, '#' .. fence .. '*')
  end
  keep(is_ours())
  if at < ends then
    wake()
  end
end
return {1, tonumber(fence), 1}

--@ handover_limit: end a permit, and take one for a waiter of the same proxy in one step, if its turn has come.
--
-- As for handover, the proxy names the first of its plain waiters, the first of its fair waiters, or both. If the
-- first place in the queue is another waiter's, or no permit is left for the waiter whose turn it is, the permit is
-- released.
--
-- Returns  {2, new fence, fence, odd, who, place, rest_ms}  released, and taken by: 1 the plain waiter, 2 the
--                                                           fair one; rest_ms of the lease that ends first
--          {1, fence, 1, 0, 0, place}                       released
--          {-1}                                             the owner has no such permit
--          odd: 1 the counter held no fence; else 0
--          place: of the plain waiters, 0 not in the queue, 1 at its head, 2 behind others

local lock, timeouts, permits, owners, channel, queue, deadlines, counter = unpack(KEYS)
local owner, fence, publish, wait, crowd, stays, plain_permit, plain_lease, plain_limit, plain_named,
  fair_permit, fair_lease, fair_limit, fair_named, fair_place = unpack(ARGV)
--@
local left, time = left_of(), redis.call('TIME')
if type(left) ~= 'string' then
  return left or {-1}
end
local now = milliseconds(time)
local permit, by, ends = permit_with(fence, now)
if not permit or owner_of_permit(permit) ~= owner then
  return {-1}
end
local plain, fair, head = plain_permit ~= '', fair_permit ~= nil, head_of()
--@ turn
local to, lease, limit, named = fair_permit, tonumber(fair_lease), tonumber(fair_limit), fair_named
if who == 1 then
  to, lease, limit, named = plain_permit, tonumber(plain_lease), tonumber(plain_limit), plain_named
end
local live, ours = held_permits(now) - 1, is_ours()
local new, replaced, rest
left = left + 1
if who == 0 or live >= limit or not ours and left <= 0 then
  --@
  end_permits({permit}, now)
  who = 0
else
  if who == 2 and head then
    take_turn(head)
  end
  remove_permits({permit})
  new, replaced = take_permit(time, to, named, lease, limit, live, left, ours)
  rest = first_end(now)
  if ends > now + lease and rest == lease then -- it was neither this lease nor another's that ended first
    wake()
  end
end
--@ crowd_place
if who == 0 then
  return {1, tonumber(by), 1, 0, 0, place}
end
local next = head and head_of()
if next and next ~= head and string.sub(next, 1, 36) ~= string.sub(crowd, 1, 36) then
  redis.call(publish, channel .. ':' .. next, '0') -- its limit may be larger, and it waits at another proxy
end
return {2, new, tonumber(by), replaced or 0, who, place, rest}

--@ renew_limit: renew leases of permits that are still ours, a batch in one call.
--
-- A lease that goes on for longer stays. However many permits of one lock there are, the lock is looked at and written
-- once. A key of another type counts as not ours: one bad key must not cost the others their lease.
--
-- Returns  {1 or 0, ...}  for each permit: renewed; or not ours any more

local lock, timeouts, permits, owners
--@
local renewed, now = {}, milliseconds(redis.call('TIME'))
for at = 1, #KEYS / 4 do
  lock, timeouts, permits, owners = unpack(KEYS, 4 * at - 3, 4 * at)
  local rows, fences, later = {}, {}, {}
  for i = 1, #ARGV, 5 do
    local nth, owner, fence, lease, note = unpack(ARGV, i, i + 4)
    if tonumber(nth) == at then
      rows[#rows + 1], fences[#fences + 1] = {(i + 4) / 5, owner, tonumber(lease), note}, fence
    end
  end
  local known = type(left_of()) == 'string' and redis.pcall('HMGET', permits, unpack(fences)) or {}
  for n = 1, #fences do
    known[n] = string.match(known[n] or '', '^[^{]+') or ''
  end
  local scores = redis.pcall('ZMSCORE', timeouts, unpack(known))
  for n, row in ipairs(rows) do
    local i, owner, lease, note = unpack(row)
    local permit, score = known[n], tonumber(scores[n] or 0)
    local ours = score >= now and owner_of_permit(permit) == owner
    renewed[i] = ours and 1 or 0
    if ours and note ~= '' then
      redis.call('HSET', permits, fences[n], permit .. '{' .. note)
    end
    if ours and score < now + lease then
      later[#later + 1], later[#later + 2] = now + lease, permit
    end
  end
  if #later > 0 then
    redis.call('ZADD', timeouts, unpack(later))
    keep(is_ours())
  end
end
return renewed

--@ prove_limit: tell whether a permit is here, by a write that changes nothing; as prove.
--
-- Returns  {1}  the permit is here
--          {0}  it is not: the lease has ended, or another server was promoted without it

local lock, timeouts, permits, owners = unpack(KEYS)
local permit, fence = unpack(ARGV)
--@
local held, by = held_permit(permit, milliseconds(redis.call('TIME')))
if not held or by ~= fence or type(left_of()) ~= 'string' then
  return {0}
end
redis.call('HSET', permits, permit, redis.call('HGET', permits, permit))
return {1}
