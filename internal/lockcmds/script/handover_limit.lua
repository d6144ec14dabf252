-- handover_limit.lua: release a permit, and take one for a waiter of the same proxy in one step, if its turn has
-- come.
--
-- As for handover.lua, the proxy names the first of its plain waiters, the first of its fair waiters, or both. If the
-- first place in the queue is another waiter's, or no permit is left for the waiter whose turn it is, the permit is
-- released. Run again, the script finds that the permit is over.
--
-- KEYS[1]  lock           string, see lib/permits.lua
-- KEYS[2]  channel        base channel of the lock; a waiter listens on channel:place
-- KEYS[3]  queue          list of places of waiters, first to ask at the head
-- KEYS[4]  fence          counter of all locks, or of this hash slot; never expires, never goes back
-- KEYS[5]  deadlines      zset place -> epoch ms after which it may be dropped
-- KEYS[6]  leases         of the permits, as in lib/permits.lua
-- KEYS[7]  fences         of the permits
-- KEYS[8]  owners         of the permits
-- ARGV[1]  owner          that releases the permit
-- ARGV[2]  fence          of the permit
-- ARGV[3]  publish        PUBLISH, or SPUBLISH in a cluster
-- ARGV[4]  wait_ms        what a deadline is counted in, > 0
-- ARGV[5]  crowd          place of the plain waiters
-- ARGV[6]  stays          1: that place stays in the queue after a grant to them; 0: it leaves
-- ARGV[7]  plain_owner    first of the plain waiters; empty: there is none
-- ARGV[8]  plain_lease    its lease length in ms, > 0
-- ARGV[9]  plain_request  number of its acquire
-- ARGV[10] plain_field    field of its session, for a named owner; empty: the owner has one session
-- ARGV[11] plain_limit    how many may hold the lock by its word
-- ARGV[12] fair_owner     first of the fair waiters; absent: there is none
-- ARGV[13] fair_lease     its lease length in ms, > 0
-- ARGV[14] fair_request   number of its acquire
-- ARGV[15] fair_field     as plain_field
-- ARGV[16] fair_limit     as plain_limit
-- ARGV[17] fair_place     its place
--
-- Returns  {2, new fence, fence, odd, who, place, rest_ms}  released, and taken by: 1 the plain waiter, 2 the
--                                                           fair one; rest_ms of the lease that ends first
--          {1, fence, 1, 0, 0, place}                       released
--          {-1}                                             the owner has no such permit
--          odd: 1 the counter held no fence; else 0
--          place: of the plain waiters, 0 not in the queue, 1 at its head, 2 behind others

local lock, channel, queue, deadlines, publish, crowd = KEYS[1], KEYS[2], KEYS[3], KEYS[5], ARGV[3], ARGV[5]
local timeouts, permits = KEYS[6], KEYS[7]
local time = redis.call('TIME')
local now = milliseconds(time)
local by, left = ARGV[2], left_of(lock)
local permit, score = permit_with(timeouts, permits, ARGV[1], by, now)
if not left or not permit then
  --@ limited
  local held = not limited(lock) and redis.pcall('HGET', lock, ARGV[1])
  return type(held) == 'table' and held or {-1}
end
local plain, fair, head, who, place = ARGV[7] ~= '', ARGV[12], head_of(queue, lock), 0, 0
if not head then
  who = fair and 2 or 1
elseif plain and head == crowd then
  who = 1
elseif fair and head == ARGV[17] then
  who = 2
end
local first = who == 1 and 7 or 12
local live, ours = held_permits(timeouts, now) - 1, is_ours(lock, permits)
local limit, new, replaced, rest = who ~= 0 and tonumber(ARGV[first + 4]), nil, nil, nil
left = left + 1
if who == 0 or live >= limit or not ours and left <= 0 then
  end_permits(publish, channel, queue, lock, {permit}, now)
  who = 0
else
  if who == 2 and head then
    take_turn(queue, deadlines, head)
  end
  remove_permits(lock, {permit})
  local field, request = ARGV[first + 3], ARGV[first + 2]
  local requests, next = requests_with('', field, request), permit_of(ARGV[first], field, request)
  local lease = tonumber(ARGV[first + 1])
  new, replaced =
    take_permit(lock, KEYS[4], time, next, requests, lease, limit, live, left, ours)
  rest = first_end(timeouts, now)
  if score > now + lease and rest == lease then -- it was neither this lease nor another's that ended first
    wake(publish, channel, queue, lock)
  end
end
if who == 1 and head and ARGV[6] == '1' then
  place = 1 -- the turn of the plain waiters goes on
elseif head and plain then
  --@ deadline
  --@ crowd
  if who == 1 then
    place = crowd_granted(queue, deadlines, lock, crowd, ARGV[6])
  else
    place = crowd_joins(queue, deadlines, lock, crowd, tonumber(ARGV[4]))
  end
end
if who == 0 then
  return {1, tonumber(by), 1, 0, 0, place}
end
local next = head and head_of(queue, lock)
if next and next ~= head and string.sub(next, 1, 36) ~= string.sub(crowd, 1, 36) then
  redis.call(publish, channel .. ':' .. next, '0') -- its limit may be larger, and it waits at another proxy
end
return {2, new, tonumber(by), replaced or 0, who, place, rest}
