-- fair.lua: acquire in order of asking: take a lock that is free and whose turn it is, deepen a hold, or queue.
--
-- Scores are epoch milliseconds by Redis TIME, spaced as Redisson spaces them, so its clients can share the queue:
-- a newcomer's deadline is the last one's plus its wait, and whoever leaves the head takes its wait off the others.
-- O(queue length) when the head acquires, and to find a queued owner; else O(1).
--
-- KEYS[1]  lock       hash {owner: holds, fence: n}; exists only while held
-- KEYS[2]  queue      list of waiting owners, first to ask at the head
-- KEYS[3]  deadlines  zset owner -> epoch ms after which anybody may drop it
-- KEYS[4]  fence      counter of this hash slot; never expires, never goes back
-- ARGV[1]  owner      opaque, non-empty, not 'fence' or 'mode'
-- ARGV[2]  lease_ms   lease length, > 0
-- ARGV[3]  wait_ms    spacing of deadlines, > 0
-- ARGV[4]  enqueue    1: wait in the queue if it is not our turn; 0: do not
--
-- Returns  {1, fence, holds}       acquired; a first hold as the bare fence
--          {0, pttl_ms, position}  not acquired; pttl -2: free, but others are first; position 1 is the
--                                  head, 0: not queued

local owner, wait = ARGV[1], tonumber(ARGV[3])
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

-- Drop heads whose deadline is over, except the caller: it is alive. A head without a deadline would block for ever
-- and gets one.
local head = redis.call('LINDEX', KEYS[2], 0)
while head and head ~= owner do
  local score = redis.call('ZSCORE', KEYS[3], head)
  if not score then
    redis.call('ZADD', KEYS[3], string.format('%.0f', now + wait), head)
    break
  end
  if tonumber(score) > now then
    break
  end
  redis.call('ZREM', KEYS[3], head)
  redis.call('LPOP', KEYS[2])
  head = redis.call('LINDEX', KEYS[2], 0)
end

local pttl = redis.call('PTTL', KEYS[1])
if pttl == -2 then
  if not head or head == owner then
    if head then
      take_turn(KEYS[2], KEYS[3], owner, wait, now)
    end
    return grant(KEYS[1], KEYS[4], owner, '1', ARGV[2], time)
  end
else
  local held = redis.pcall('HMGET', KEYS[1], owner, 'fence')
  if held.err then
    return held
  end
  if held[1] then
    local holds = redis.call('HINCRBY', KEYS[1], owner, 1)
    local fence = held[2] and tonumber(held[2])
    if fence then
      redis.call('PEXPIRE', KEYS[1], ARGV[2])
    else -- taken without one, by Redisson
      fence = grant(KEYS[1], KEYS[4], owner, holds, ARGV[2], time)
    end
    return {1, fence, holds}
  end
end

if ARGV[4] ~= '1' then
  return {0, pttl, 0}
end
if head == owner then
  return {0, pttl, 1}
end
local queued = head and redis.call('LPOS', KEYS[2], owner)
local score = queued and redis.call('ZSCORE', KEYS[3], owner)
if score then
  return {0, pttl, queued + 1}
end
local deadline = now + math.max(pttl, 0)
local last = redis.call('LINDEX', KEYS[2], -1)
if last and last ~= owner then
  deadline = math.max(now, tonumber(redis.call('ZSCORE', KEYS[3], last) or deadline))
end
redis.call('ZADD', KEYS[3], string.format('%.0f', deadline + wait), owner)
if queued then
  return {0, pttl, queued + 1}
end
return {0, pttl, redis.call('RPUSH', KEYS[2], owner)}
