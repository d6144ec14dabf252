-- acquire_limit.lua: take a permit of a lock that at most n hold at the same time.
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
--          place: of the plain waiters, 0 not in the queue, 1 at its head, 2 behind others; of a fair one as in fair.lua

local lock, timeouts, permits, owners, channel, queue, deadlines, counter = unpack(KEYS)
local permit, lease, limit, named, wait, place, way, stays, enqueue, publish = unpack(ARGV)
lease, limit, wait = tonumber(lease), tonumber(limit), tonumber(wait)
--@ permits
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
    take_turn(queue, deadlines, place)
  elseif way == 'crowd' then
    --@ crowd
    return crowd_granted(queue, deadlines, lock, place, stays)
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
    leave_more(publish, channel, n)
    left = left_of()
  end
end
live, ours = held_permits(now), not left or is_ours()
if live >= limit then
  pttl = rest_until(redis.call('ZRANGE', timeouts, live - limit, live - limit, 'WITHSCORES')[2], now)
elseif not ours and tonumber(left) <= 0 then
  pttl = live == 0 and -1 or first_end(now)
end

local head, at = head_of(queue, lock), 0
if pttl == -2 then
  local turn = live == 0 and kept_for(channel, lock)
  if not turn or turn == place then
    if head and head ~= place and way ~= '' then
      --@ drop_late
      head = drop_late(publish, channel, queue, deadlines, lock, place, now, wait)
    end
    if not head or head == place or live == 0 and way ~= 'fair' then
      if turn then
        redis.call('DEL', channel)
      end
      --@ take_permit
      local fence, replaced, kept = take_permit(counter, time, permit, named, lease, limit, live, left, ours)
      at = settled()
      local next = head and head_of(queue, lock)
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
  --@ mend
  --@ line_up
  line_up(queue, deadlines, head, place, now, pttl, wait)
  head = head or place
elseif way == 'crowd' and (enqueue == '1' or head) then
  --@ crowd
  at = crowd_joins(queue, deadlines, lock, place, wait)
end
if way == 'fair' and head == place and form then
  at = 1
end
return {0, pttl, at, form}
