-- acquire_limit.lua: take a permit of a lock that at most n hold at the same time.
--
-- Each acquire takes a permit of its own. While others have permits, one is taken only if no other
-- place is first in the fair queue. So a waiter that wants the lock for itself, or has a smaller n, is not overtaken
-- by one newcomer after the other. Run again the script answers with the permit as it is, and a place in the queue is
-- not taken twice.
--
-- KEYS[1]  lock       string, see lib/permits.lua; or the hash of a lock that is held in another way
-- KEYS[2]  queue      list of places of waiters, first to ask at the head
-- KEYS[3]  deadlines  zset place -> epoch ms after which it may be dropped
-- KEYS[4]  fence      counter of all locks, or of this hash slot; never expires, never goes back
-- KEYS[5]  channel    base channel of the lock; as a key it says for which place the free lock is kept
-- KEYS[6]  leases     of the permits, as in lib/permits.lua
-- KEYS[7]  fences     of the permits
-- KEYS[8]  owners     of the permits
-- ARGV[1]  owner      opaque, non-empty, not 'fence' or 'mode', without braces
-- ARGV[2]  lease_ms   lease length, > 0
-- ARGV[3]  request    number of this call, larger than those of earlier calls of the session
-- ARGV[4]  limit      how many may hold the lock, this one included; >= 1
-- ARGV[5]  field      of the session, for a named owner; empty: the owner has one session
-- ARGV[6]  wait_ms    what a deadline is counted in, > 0
-- ARGV[7]  place      the waiter's own, or that of the proxy's plain waiters; empty: it has none
-- ARGV[8]  way        fair: the place is its own; crowd: it is that of the plain waiters; empty: there is none
-- ARGV[9]  stays      1: that place stays in the queue if a permit is taken; 0: it leaves
-- ARGV[10] enqueue    1: take a place if no permit is taken; 0: plain waiters do only if others have one
-- ARGV[11] publish    PUBLISH, or SPUBLISH in a cluster
--
-- Returns  {1, fence, 1, odd, place, more, rest_ms}  taken; odd 1: the counter held no fence; more 2: another permit is
--                                                    left; rest_ms of the lease that ends first
--          {1, fence, 1, odd, 0, 1}                  overtaken by a later call of the session
--          {0, pttl_ms, place, form}                 not taken; pttl -2: free, but kept for another; -3: a permit is
--                                                    left, but others are first; form as in acquire.lua, or absent
--          place: of the plain waiters, 0 not in the queue, 1 at its head, 2 behind others

local lock, queue, deadlines, channel = KEYS[1], KEYS[2], KEYS[3], KEYS[5]
local lease, field, limit, wait, place = tonumber(ARGV[2]), ARGV[5], tonumber(ARGV[4]), tonumber(ARGV[6]), ARGV[7]
local way, publish, permit = ARGV[8], ARGV[11], permit_of(ARGV[1], field, ARGV[3])
local timeouts, permits = KEYS[6], KEYS[7]
local time = redis.call('TIME')
local now, left, live, pttl, form, ours = milliseconds(time), left_of(lock), 0, -2, nil, true

-- settled is where the place of the waiter is after a permit was taken.
local function settled()
  if way == 'fair' and type(redis.pcall('ZSCORE', deadlines, place)) == 'string' then
    take_turn(queue, deadlines, place)
  elseif way == 'crowd' then
    --@ crowd
    return crowd_granted(queue, deadlines, lock, place, ARGV[9])
  end
  return 0
end

if left or redis.call('EXISTS', lock) == 0 then
  local score, known = redis.call('ZSCORE', timeouts, permit), redis.call('HMGET', permits, permit, 'mode')
  if known[2] then -- a lock of that name
    return redis.pcall('GET', permits) -- WRONGTYPE
  end
  local record = known[1]
  if left and record and score and tonumber(score) > now then
    local by, requests = string.match(record, '^#(%d+) (.*)$')
    if number_in(requests, field) > tonumber(ARGV[3]) then
      return {1, tonumber(by), 1, 0, 0, 1}
    end
    if tonumber(score) < now + lease then
      redis.call('ZADD', timeouts, now + lease, permit)
      keep(lock, is_ours(lock, permits))
    end
    return {1, tonumber(by), 1, 0, settled(), 0, first_end(timeouts, now)}
  end
  local ended = redis.call('ZRANGEBYSCORE', timeouts, '-inf', now, 'LIMIT', 0, 1000)
  if #ended > 0 then
    local n = remove_permits(lock, ended)
    if left then
      leave_more(publish, channel, lock, n)
      left = left_of(lock)
    end
  end
  live, ours = held_permits(timeouts, now), not left or is_ours(lock, permits)
  if live >= limit then
    pttl = rest_until(redis.call('ZRANGE', timeouts, live - limit, live - limit, 'WITHSCORES')[2], now)
  elseif not ours and tonumber(left) <= 0 then
    pttl = live == 0 and -1 or first_end(timeouts, now)
  end
else
  local mode = redis.pcall('HGET', lock, 'mode')
  if type(mode) == 'table' then
    return mode
  elseif mode ~= 'lock' then
    --@ hash
    local wrong = no_lock(lock, mode)
    if wrong then
      return wrong
    end
  end
  pttl, form = redis.call('PTTL', lock), mode and mode ~= 'lock' and 1 or nil
  live = 1
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
      local requests = requests_with('', field, ARGV[3])
      local fence, replaced, kept =
        take_permit(lock, KEYS[4], time, permit, requests, lease, limit, live, left, ours)
      local more = kept > 0 and live + 1 < limit
      at = settled()
      local next = head and head_of(queue, lock)
      if next and next ~= place then -- its limit may be larger
        redis.call(publish, channel .. ':' .. next, '0')
      end
      return {1, fence, 1, replaced or 0, at, more and 2 or 0, first_end(timeouts, now)}
    end
    pttl = live == 0 and -2 or -3
  end
end
if left and live > 0 then
  form = in_form(timeouts, permits, ours)
end
if way == 'fair' and ARGV[10] == '1' and head ~= place then
  --@ mend
  --@ line_up
  line_up(queue, deadlines, head, place, now, pttl, wait)
elseif way == 'crowd' and (ARGV[10] == '1' or head) then
  --@ crowd
  at = crowd_joins(queue, deadlines, lock, place, wait)
end
return {0, pttl, at, form}
