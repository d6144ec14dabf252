-- fair.lua: acquire in order of asking: take a lock that is free and whose turn it is, deepen a hold, or queue.
--
-- Scores are epoch milliseconds by Redis TIME, so that Redisson's clients can share the queue: they drop a head whose
-- deadline is over. Here a head loses its place only if its channel has no subscriber either. O(log n) of the places,
-- and as much for each head that is dropped.
--
-- Run again, the script finds its grant, and sets the lease anew; a place in the queue is not taken twice. A copy that
-- arrives after the waiter has left takes a place without a waiter; see remove_head.lua.
--
-- KEYS[1]  lock       hash, see lib/hash.lua; exists only while held
-- KEYS[2]  queue      list of places of waiters, first to ask at the head
-- KEYS[3]  deadlines  zset place -> epoch ms after which it may be dropped
-- KEYS[4]  fence      counter of all locks, or of this hash slot; never expires, never goes back
-- KEYS[5]  channel    base channel of the lock; a waiter listens on channel:place; see kept_for
-- ARGV[1]  owner      opaque, non-empty, not 'fence' or 'mode', without braces
-- ARGV[2]  lease_ms   lease length, > 0
-- ARGV[3]  name       of the acquire, for a named owner; empty: the owner has no other acquire
-- ARGV[4]  field      for a named owner, see by_with in lib/hold.lua
-- ARGV[5]  wait_ms    what a deadline is counted in, > 0
-- ARGV[6]  enqueue    1: wait in the queue if it is not our turn; 0: do not
-- ARGV[7]  publish    PUBLISH, or SPUBLISH in a cluster
-- ARGV[8]  place      of the waiter in the queue
-- ARGV[9]  tell       1: other waiters of the owner are told of a first hold; 0: there are none
--
-- Returns  {1, fence, holds, odd, 0}  acquired
--          fence                      acquired, a first hold; or {1, fence, 1, 1}: the counter held no fence
--          {0, pttl_ms}               not acquired; pttl -2: free, but others are first
--          {0, pttl_ms, first, 1}     the same, as in acquire.lua; first 1: its place is the first, and the holder's
--                                     release may tell the base channel alone, as Redisson's do; 0 or absent: else
--          {0, -4}                    the owner holds it shared, as in acquire.lua; no place is taken

local owner, wait, place = ARGV[1], tonumber(ARGV[5]), ARGV[8]
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local head = head_of(KEYS[2], KEYS[1])
local pttl, mode, form = redis.call('PTTL', KEYS[1]), nil, nil
if pttl ~= -2 then
  mode = redis.pcall('HGET', KEYS[1], 'mode')
  if mode == 'read' and pttl ~= -1 then
    --@ hash
    --@ shared
    --@ longest
    --@ rest_of
    pttl = rest_of(KEYS[1], pttl)
  end
  form = pttl ~= -2 and type(mode) == 'string' and mode ~= 'lock' and 1 or nil
end
if pttl == -2 then
  --@ take_turn
  if head and head ~= place then
    --@ drop_late
    --@ turn
    head = drop_late(ARGV[7], KEYS[5], KEYS[2], KEYS[3], KEYS[1], place, now, wait)
    if head and head ~= place and kept_for(KEYS[5], KEYS[1]) == place then -- those before it did not listen
      for _, other in ipairs(redis.call('LRANGE', KEYS[2], '0', '15')) do
        if other == place then
          head = place
          break
        elseif waits_for(other, KEYS[1]) and redis.call(ARGV[7], KEYS[5] .. ':' .. other, '0') > 0 then
          break
        end
      end
    end
  end
  if not head or head == place then
    if head then
      take_turn(KEYS[2], KEYS[3], place)
      redis.call('DEL', KEYS[5])
      --@ tell_first
      tell_first(ARGV[7], KEYS[5], KEYS[2], KEYS[1], ARGV[2])
    end
    if ARGV[9] == '1' then
      redis.call(ARGV[7], KEYS[5] .. ':' .. place, '0')
    end
    --@ grant
    local fence, odd = grant(KEYS[1], KEYS[4], owner, ARGV[2], time, ARGV[3])
    return odd and {1, fence, 1, odd} or fence
  end
elseif mode ~= 'lock' or redis.pcall('HEXISTS', KEYS[1], owner) ~= 0 then
  --@ hash
  --@ hold
  --@ grant
  --@ deepen
  local answer
  answer, mode = deepen(KEYS[1], KEYS[4], owner, ARGV[2], ARGV[3], ARGV[4])
  if answer and answer[1] == 0 then
    return answer
  elseif answer then
    local waited = not answer.err and ARGV[9] == '1'
    if waited and type(redis.pcall('ZSCORE', KEYS[3], place)) == 'string' then
      --@ take_turn
      take_turn(KEYS[2], KEYS[3], place) -- it waited, and another session of the owner has got the lock
    end
    if not answer.err then
      --@ wake
      --@ shortened
      shortened(ARGV[7], KEYS[5], KEYS[2], KEYS[1], pttl)
    end
    return answer
  end
end

if ARGV[6] == '1' and head ~= place then
  --@ mend
  --@ line_up
  line_up(KEYS[2], KEYS[3], head, place, now, pttl, wait)
  head = head or place
end
return {0, pttl, head == place and mode ~= 'lock' and 1 or form and 0, form}
