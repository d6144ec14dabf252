-- fair.lua: acquire in order of asking: take a lock that is free and whose turn it is, deepen a hold, or queue.
--
-- Scores are epoch milliseconds by Redis TIME, so that Redisson's clients can share the queue: they drop a head whose
-- deadline is over. Here a head loses its place only if its channel has no subscriber either. O(log n) of the places,
-- and as much for each head that is dropped.
--
-- Run again, the script finds its grant, and sets the lease anew; a place in the queue is not taken twice. A copy that
-- arrives after the waiter has left takes a place without a waiter; see remove_head.lua.
--
-- Returns  {1, fence, holds, odd, 0}  acquired
--          fence                      acquired, a first hold; or {1, fence, 1, 1}: the counter held no fence
--          {0, pttl_ms}               not acquired; pttl -2: free, but others are first
--          {0, pttl_ms, first, 1}     the same, as in acquire.lua; first 1: its place is the first, and the holder's
--                                     release may tell the base channel alone, as Redisson's do; 0 or absent: else
--          {0, -4}                    the owner holds it shared, as in acquire.lua; no place is taken

local lock, queue, deadlines, counter, channel = unpack(KEYS)
local owner, lease, name, field, wait, enqueue, publish, place, tell = unpack(ARGV)
wait = tonumber(wait)
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local head = head_of(queue, lock)
local pttl, mode, form = redis.call('PTTL', lock), nil, nil
if pttl ~= -2 then
  mode = redis.pcall('HGET', lock, 'mode')
  if mode == 'read' and pttl ~= -1 then
    --@ hash
    --@ shared
    --@ longest
    --@ rest_of
    pttl = rest_of(lock, pttl)
  end
  form = pttl ~= -2 and type(mode) == 'string' and mode ~= 'lock' and 1 or nil
end
if pttl == -2 then
  --@ take_turn
  if head and head ~= place then
    --@ drop_late
    --@ turn
    head = drop_late(publish, channel, queue, deadlines, lock, place, now, wait)
    if head and head ~= place and kept_for(channel, lock) == place then -- those before it did not listen
      for _, other in ipairs(redis.call('LRANGE', queue, '0', '15')) do
        if other == place then
          head = place
          break
        elseif waits_for(other, lock) and redis.call(publish, channel .. ':' .. other, '0') > 0 then
          break
        end
      end
    end
  end
  if not head or head == place then
    if head then
      take_turn(queue, deadlines, place)
      redis.call('DEL', channel)
      --@ tell_first
      tell_first(publish, channel, queue, lock, lease)
    end
    if tell ~= '' then
      redis.call(publish, tell, '0')
    end
    --@ grant
    local fence, odd = grant(lock, counter, owner, lease, time, name)
    return odd and {1, fence, 1, odd} or fence
  end
elseif mode ~= 'lock' or redis.pcall('HEXISTS', lock, owner) ~= 0 then
  --@ hash
  --@ hold
  --@ grant
  --@ deepen
  local answer
  answer, mode = deepen(lock, counter, owner, lease, name, field)
  if answer and answer[1] == 0 then
    return answer
  elseif answer then
    local waited = not answer.err and tell ~= ''
    if waited and type(redis.pcall('ZSCORE', deadlines, place)) == 'string' then
      --@ take_turn
      take_turn(queue, deadlines, place) -- it waited, and another session of the owner has got the lock
    end
    if not answer.err then
      --@ wake
      --@ shortened
      shortened(publish, channel, queue, lock, pttl)
    end
    return answer
  end
end

if enqueue == '1' and head ~= place then
  --@ mend
  --@ line_up
  line_up(queue, deadlines, head, place, now, pttl, wait)
  head = head or place
end
return {0, pttl, head == place and mode ~= 'lock' and 1 or form and 0, form}
