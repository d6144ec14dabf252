-- handover_limit.lua: end a permit, and take one for a waiter of the same proxy in one step, if its turn has come.
--
-- As for handover.lua, the proxy names the first of its plain waiters, the first of its fair waiters, or both. If the
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
--@ permits
--@ take_permit
local left, time = left_of(), redis.call('TIME')
if type(left) ~= 'string' then
  return left or {-1}
end
local now = milliseconds(time)
local permit, by, ends = permit_with(fence, now)
if not permit or owner_of_permit(permit) ~= owner then
  return {-1}
end
local plain, fair, head, who, place = plain_permit ~= '', fair_permit, head_of(queue, lock), 0, 0
if not head then
  who = fair and 2 or 1
elseif plain and head == crowd then
  who = 1
elseif fair and head == fair_place then
  who = 2
end
local to, lease, limit, named = fair_permit, tonumber(fair_lease), tonumber(fair_limit), fair_named
if who == 1 then
  to, lease, limit, named = plain_permit, tonumber(plain_lease), tonumber(plain_limit), plain_named
end
local live, ours = held_permits(now) - 1, is_ours()
local new, replaced, rest
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
  new, replaced = take_permit(counter, time, to, named, lease, limit, live, left, ours)
  rest = first_end(now)
  if ends > now + lease and rest == lease then -- it was neither this lease nor another's that ended first
    wake(publish, channel, queue, lock)
  end
end
if who == 1 and head and stays == '1' then
  place = 1 -- the turn of the plain waiters goes on
elseif head and plain then
  --@ deadline
  --@ crowd
  if who == 1 then
    place = crowd_granted(queue, deadlines, lock, crowd, stays)
  else
    place = crowd_joins(queue, deadlines, lock, crowd, tonumber(wait))
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
