-- handover_limit.lua: end a permit, and take one for a waiter of the same proxy in one step, if its turn has come.
--
-- As for handover.lua, the proxy names the first of its plain waiters, the first of its fair waiters, or both. If the
-- first place in the queue is another waiter's, or no permit is left for the waiter whose turn it is, the permit is
-- released.
--
-- KEYS[1]  lock          string, see lib/permits.lua
-- KEYS[2]  timeouts      leases of the permits
-- KEYS[3]  permits       their names and fences
-- KEYS[4]  owners        those of named owners
-- KEYS[5]  channel       base channel of the lock; a waiter listens on channel:place
-- KEYS[6]  queue         list of places of waiters, first to ask at the head
-- KEYS[7]  deadlines     zset place -> epoch ms after which it may be dropped
-- KEYS[8]  fence         counter of all locks, or of this hash slot; never expires, never goes back
-- ARGV[1]  owner         of the permit
-- ARGV[2]  fence         of the permit
-- ARGV[3]  publish       PUBLISH, or SPUBLISH in a cluster
-- ARGV[4]  wait_ms       what a deadline is counted in, > 0
-- ARGV[5]  crowd         place of the plain waiters
-- ARGV[6]  stays         1: that place stays in the queue after a grant to them; 0: it leaves
-- ARGV[7]  plain_permit  of the first of the plain waiters; empty: there is none
-- ARGV[8]  plain_lease   its lease length in ms, > 0
-- ARGV[9]  plain_limit   how many may hold the lock by its word
-- ARGV[10] plain_named   1: its owner was named by OWNER; 0: it was not
-- ARGV[11] fair_permit   of the first of the fair waiters; absent: there is none
-- ARGV[12] fair_lease    its lease length in ms, > 0
-- ARGV[13] fair_limit    as plain_limit
-- ARGV[14] fair_named    as plain_named
-- ARGV[15] fair_place    its place
--
-- Returns  {2, new fence, fence, odd, who, place, rest_ms}  released, and taken by: 1 the plain waiter, 2 the
--                                                           fair one; rest_ms of the lease that ends first
--          {1, fence, 1, 0, 0, place}                       released
--          {-1}                                             the owner has no such permit
--          odd: 1 the counter held no fence; else 0
--          place: of the plain waiters, 0 not in the queue, 1 at its head, 2 behind others

local lock, timeouts, permits, owners = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
--@ permits
--@ take_permit
local channel, queue, deadlines, publish, crowd = KEYS[5], KEYS[6], KEYS[7], ARGV[3], ARGV[5]
local left, time = left_of(), redis.call('TIME')
if type(left) ~= 'string' then
  return left or {-1}
end
local now = milliseconds(time)
local permit, by, ends = permit_with(ARGV[2], now)
if not permit or owner_of_permit(permit) ~= ARGV[1] then
  return {-1}
end
local plain, fair, head, who, place = ARGV[7] ~= '', ARGV[11], head_of(queue, lock), 0, 0
if not head then
  who = fair and 2 or 1
elseif plain and head == crowd then
  who = 1
elseif fair and head == ARGV[15] then
  who = 2
end
local first = who == 1 and 7 or 11
local live, ours = held_permits(now) - 1, is_ours()
local limit, new, replaced, rest = who ~= 0 and tonumber(ARGV[first + 2]), nil, nil, nil
left = left + 1
if who == 0 or live >= limit or not ours and left <= 0 then
  --@ end_permits
  end_permits(publish, channel, queue, {permit}, now)
  who = 0
else
  if who == 2 and head then
    take_turn(queue, deadlines, head)
  end
  remove_permits({permit})
  local lease = tonumber(ARGV[first + 1])
  new, replaced = take_permit(KEYS[8], time, ARGV[first], ARGV[first + 3], lease, limit, live, left, ours)
  rest = first_end(now)
  if ends > now + lease and rest == lease then -- it was neither this lease nor another's that ended first
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
