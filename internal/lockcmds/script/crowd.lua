-- crowd.lua: acquire for the first of the plain waiters of a proxy, which share one place in the fair queue.
--
-- A free lock that is not reserved is taken, even if another place is first: it was freed by the end of a lease, or
-- the first has not come for it. Run again, the script finds its grant, and sets the lease anew.
--
-- Returns  {1, fence, holds, odd, place}  acquired; odd 1: the counter held no fence
--          {0, pttl_ms, place}            not acquired; pttl -2: free, but kept for another
--          {0, pttl_ms, place, form}      the same; form as in acquire.lua
--          {0, -4}                        the owner holds it shared, as in acquire.lua
--          place: 0 not in the queue, 1 at its head, 2 behind others

local lock, queue, deadlines, counter, channel = unpack(KEYS)
local owner, lease, name, field, wait, place, stays, enqueue, publish, tell = unpack(ARGV)

local pttl, mode = redis.call('PTTL', lock), nil
if pttl >= 0 and redis.pcall('HGET', lock, 'mode') == 'read' then
  --@ longest
  --@ rest_of
  pttl = rest_of(lock, pttl)
end
if pttl == -2 then
  local turn = kept_for(channel, lock)
  if not turn or turn == place then
    if turn then
      redis.call('DEL', channel)
    end
    local time = redis.call('TIME')
    local head = head_of(queue, lock)
    if head and head ~= place then
      local now = time[1] * 1000 + math.floor(time[2] / 1000)
      head = drop_late(publish, channel, queue, deadlines, lock, place, now, tonumber(wait))
      if head and head ~= place then
        crowd_passed(publish, channel, deadlines, head, now)
      end
    end
    if tell ~= '' then
      redis.call(publish, tell, '0')
    end
    local fence, replaced = grant(lock, counter, owner, lease, time, name)
    local at = crowd_granted(queue, deadlines, lock, place, stays)
    if head == place and at == 0 then
      --@ tell_first
      tell_first(publish, channel, queue, lock, lease)
    end
    return {1, fence, 1, replaced or 0, at}
  end
else
  local answer
  answer, mode = deepen(lock, counter, owner, lease, name, field)
  if answer and answer[1] == 0 then
    return answer
  elseif answer then
    if not answer.err then
      shortened(publish, channel, queue, lock, pttl)
      answer[5] = crowd_granted(queue, deadlines, lock, place, stays)
    end
    return answer
  end
end
local form = mode and mode ~= 'lock' and 1 or nil
if enqueue == '1' or mode == 'read' or head_of(queue, lock) then -- behind the place no further holder gets in beside others
  return {0, pttl, crowd_joins(queue, deadlines, lock, place, tonumber(wait)), form}
end
return {0, pttl, 0, form}
