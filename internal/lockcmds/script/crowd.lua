-- crowd.lua: acquire for the first of the plain waiters of a proxy, which share one place in the fair queue.
--
-- A free lock that is kept for nobody is taken, whoever is first in the queue: it was freed by the end of a lease, or
-- the first has not come for it.
--
-- KEYS[1]  lock       hash {owner: holds, fence: n}; exists only while held
-- KEYS[2]  queue      list of places of waiters, first to ask at the head
-- KEYS[3]  deadlines  zset place -> epoch ms after which it may be dropped
-- KEYS[4]  fence      counter of all locks; never expires, never goes back
-- KEYS[5]  channel    base channel of the lock; as a key it says for which place the free lock is kept
-- ARGV[1]  owner      opaque, non-empty, not 'fence' or 'mode'
-- ARGV[2]  lease_ms   lease length, > 0
-- ARGV[3]  wait_ms    what a deadline is counted in, > 0
-- ARGV[4]  place      of the proxy's plain waiters
-- ARGV[5]  stays      1: the place stays in the queue if the lock is acquired; 0: it leaves
-- ARGV[6]  enqueue    1: take a place if the lock is not acquired; 0: only if others have one
-- ARGV[7]  publish    PUBLISH
-- ARGV[8]  tell       channel on which others who wait for the same owner are told of a first hold; empty: nobody does
--
-- Returns  {1, fence, holds, odd, place}  acquired; odd 1: the counter held no fence
--          {0, pttl_ms, place}            not acquired; pttl -2: free, but kept for another
--          place: 0 not in the queue, 1 at its head, 2 behind others

local pttl = redis.call('PTTL', KEYS[1])
if pttl == -2 then
  local turn = kept_for(KEYS[5], KEYS[1])
  if not turn or turn == ARGV[4] then
    if turn then
      redis.call('DEL', KEYS[5])
    end
    local time = redis.call('TIME')
    local head = head_of(KEYS[2], KEYS[1])
    if head and head ~= ARGV[4] then
      local now = time[1] * 1000 + math.floor(time[2] / 1000)
      head = drop_late(ARGV[7], KEYS[5], KEYS[2], KEYS[3], KEYS[1], ARGV[4], now, tonumber(ARGV[3]))
      if head and head ~= ARGV[4] then
        crowd_passed(ARGV[7], KEYS[5], KEYS[3], head, now)
      end
    end
    if ARGV[8] ~= '' then
      redis.call(ARGV[7], ARGV[8], '0')
    end
    local fence, replaced = grant(KEYS[1], KEYS[4], ARGV[1], '1', ARGV[2], time)
    return {1, fence, 1, replaced or 0, crowd_granted(KEYS[2], KEYS[3], KEYS[1], ARGV[4], ARGV[5])}
  end
else
  local held = redis.pcall('HMGET', KEYS[1], ARGV[1], 'fence')
  if held.err then
    return held
  end
  if held[1] then
    local holds = redis.call('HINCRBY', KEYS[1], ARGV[1], 1)
    local fence, replaced = held[2] and tonumber(held[2]), nil
    if fence then
      redis.call('PEXPIRE', KEYS[1], ARGV[2])
    else -- taken without one, by Redisson
      fence, replaced = grant(KEYS[1], KEYS[4], ARGV[1], holds, ARGV[2], redis.call('TIME'))
    end
    return {1, fence, holds, replaced or 0, crowd_granted(KEYS[2], KEYS[3], KEYS[1], ARGV[4], ARGV[5])}
  end
end
if ARGV[6] == '1' or head_of(KEYS[2], KEYS[1]) then
  return {0, pttl, crowd_joins(KEYS[2], KEYS[3], KEYS[1], ARGV[4], tonumber(ARGV[3]))}
end
return {0, pttl, 0}
