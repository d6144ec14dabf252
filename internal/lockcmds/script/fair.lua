-- fair.lua: acquire in order of asking: take a lock that is free and whose turn it is, deepen a hold, or queue.
--
-- Scores are epoch milliseconds by Redis TIME, so that Redisson's clients can share the queue: they drop a head whose
-- deadline is over. Here a head loses its place only if nobody listens on its channel either. O(log n) of the places,
-- and as much for each head that is dropped.
--
-- KEYS[1]  lock       hash {owner: holds, fence: n}; exists only while held
-- KEYS[2]  queue      list of places of waiters, first to ask at the head
-- KEYS[3]  deadlines  zset place -> epoch ms after which it may be dropped
-- KEYS[4]  fence      counter of all locks; never expires, never goes back
-- KEYS[5]  channel    base channel of the lock; a waiter listens on channel:place; see kept_for
-- ARGV[1]  owner      opaque, non-empty, not 'fence' or 'mode'
-- ARGV[2]  lease_ms   lease length, > 0
-- ARGV[3]  wait_ms    what a deadline is counted in, > 0
-- ARGV[4]  enqueue    1: wait in the queue if it is not our turn; 0: do not
-- ARGV[5]  publish    PUBLISH
-- ARGV[6]  place      the owner's name in the queue
-- ARGV[7]  tell       1: others may wait for the same owner, and are told of a first hold; 0: nobody does
--
-- Returns  {1, fence, holds}  acquired; a first hold as the bare fence, or {1, fence, 1, 1}: the counter held no
--                             fence
--          {0, pttl_ms}       not acquired; pttl -2: free, but others are first

local owner, wait, place = ARGV[1], tonumber(ARGV[3]), ARGV[6]
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local head = head_of(KEYS[2], KEYS[1])
local pttl = redis.call('PTTL', KEYS[1])
if pttl == -2 then
  head = drop_late(ARGV[5], KEYS[5], KEYS[2], KEYS[3], KEYS[1], place, now, wait)
  if not head or head == place then
    if head then
      take_turn(KEYS[2], KEYS[3], place)
      redis.call('DEL', KEYS[5])
    end
    if ARGV[7] == '1' then
      redis.call(ARGV[5], KEYS[5] .. ':' .. place, '0')
    end
    return first(grant(KEYS[1], KEYS[4], owner, '1', ARGV[2], time))
  end
else
  local held = redis.pcall('HMGET', KEYS[1], owner, 'fence')
  if held.err then
    return held
  end
  if held[1] then
    if ARGV[7] == '1' and type(redis.pcall('ZSCORE', KEYS[3], place)) == 'string' then
      take_turn(KEYS[2], KEYS[3], place) -- it waited, and another session of the owner has got the lock
    end
    local holds = redis.call('HINCRBY', KEYS[1], owner, 1)
    local fence, replaced = held[2] and tonumber(held[2]), nil
    if fence then
      redis.call('PEXPIRE', KEYS[1], ARGV[2])
    else -- taken without one, by Redisson
      fence, replaced = grant(KEYS[1], KEYS[4], owner, holds, ARGV[2], time)
    end
    return {1, fence, holds, replaced}
  end
end

if ARGV[4] == '1' and head ~= place and not (head and redis.call('ZSCORE', KEYS[3], place)) then
  redis.call('ZADD', KEYS[3], deadline(KEYS[2], now + math.max(pttl, 0), wait), place)
  redis.call('RPUSH', KEYS[2], place)
end
return {0, pttl}
