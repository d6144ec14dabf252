-- crowd.lua: acquire for the first of the plain waiters of a proxy, which share one place in the fair queue.
--
-- A free lock that is not reserved is taken, even if another place is first: it was freed by the end of a lease, or
-- the first has not come for it. Run again, the script finds its grant, and sets the lease anew.
--
-- KEYS[1]  lock       hash, see lib/hash.lua; exists only while held
-- KEYS[2]  queue      list of places of waiters, first to ask at the head
-- KEYS[3]  deadlines  zset place -> epoch ms after which it may be dropped
-- KEYS[4]  fence      counter of all locks, or of this hash slot; never expires, never goes back
-- KEYS[5]  channel    base channel of the lock; as a key it says for which place the free lock is kept
-- ARGV[1]  owner      opaque, non-empty, not 'fence' or 'mode', without braces
-- ARGV[2]  lease_ms   lease length, > 0
-- ARGV[3]  name       of the acquire, for a named owner; empty: the owner has no other acquire
-- ARGV[4]  field      for a named owner, see by_with in lib/hold.lua
-- ARGV[5]  wait_ms    what a deadline is counted in, > 0
-- ARGV[6]  place      of the proxy's plain waiters
-- ARGV[7]  stays      1: the place stays in the queue if the lock is acquired; 0: it leaves
-- ARGV[8]  enqueue    1: take a place if the lock is not acquired; 0: only if others have one
-- ARGV[9]  publish    PUBLISH, or SPUBLISH in a cluster
-- ARGV[10] tell       channel on which other waiters of a named owner are told of a first hold; empty: there are none
--
-- Returns  {1, fence, holds, odd, place}  acquired; odd 1: the counter held no fence
--          {0, pttl_ms, place}            not acquired; pttl -2: free, but kept for another
--          {0, pttl_ms, place, form}      the same; form as in acquire.lua
--          {0, -4}                        the owner holds it shared, as in acquire.lua
--          place: 0 not in the queue, 1 at its head, 2 behind others

local pttl, mode = redis.call('PTTL', KEYS[1]), nil
if pttl >= 0 and redis.pcall('HGET', KEYS[1], 'mode') == 'read' then
  --@ longest
  --@ rest_of
  pttl = rest_of(KEYS[1], pttl)
end
if pttl == -2 then
  local turn = kept_for(KEYS[5], KEYS[1])
  if not turn or turn == ARGV[6] then
    if turn then
      redis.call('DEL', KEYS[5])
    end
    local time = redis.call('TIME')
    local head = head_of(KEYS[2], KEYS[1])
    if head and head ~= ARGV[6] then
      local now = time[1] * 1000 + math.floor(time[2] / 1000)
      head = drop_late(ARGV[9], KEYS[5], KEYS[2], KEYS[3], KEYS[1], ARGV[6], now, tonumber(ARGV[5]))
      if head and head ~= ARGV[6] then
        crowd_passed(ARGV[9], KEYS[5], KEYS[3], head, now)
      end
    end
    if ARGV[10] ~= '' then
      redis.call(ARGV[9], ARGV[10], '0')
    end
    local fence, replaced = grant(KEYS[1], KEYS[4], ARGV[1], ARGV[2], time, ARGV[3])
    local at = crowd_granted(KEYS[2], KEYS[3], KEYS[1], ARGV[6], ARGV[7])
    if head == ARGV[6] and at == 0 then
      --@ tell_first
      tell_first(ARGV[9], KEYS[5], KEYS[2], KEYS[1], ARGV[2])
    end
    return {1, fence, 1, replaced or 0, at}
  end
else
  local answer
  answer, mode = deepen(KEYS[1], KEYS[4], ARGV[1], ARGV[2], ARGV[3], ARGV[4])
  if answer and answer[1] == 0 then
    return answer
  elseif answer then
    if not answer.err then
      shortened(ARGV[9], KEYS[5], KEYS[2], KEYS[1], pttl)
      answer[5] = crowd_granted(KEYS[2], KEYS[3], KEYS[1], ARGV[6], ARGV[7])
    end
    return answer
  end
end
local form = mode and mode ~= 'lock' and 1 or nil
if ARGV[8] == '1' or mode == 'read' or head_of(KEYS[2], KEYS[1]) then -- behind the place no further holder gets in beside others
  return {0, pttl, crowd_joins(KEYS[2], KEYS[3], KEYS[1], ARGV[6], tonumber(ARGV[5])), form}
end
return {0, pttl, 0, form}
