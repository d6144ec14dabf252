-- front.lua: a fair waiter whose grant is about to be dropped goes to the head of the queue again.
--
-- Only the holder may: while it holds the lock, no other waiter has its turn. Run again the script does the same, and
-- nothing when the grant has ended.
--
-- KEYS[1]  lock       hash, see lib/hash.lua; exists only while held
-- KEYS[2]  queue      list of places of waiters, first to ask at the head
-- KEYS[3]  deadlines  zset place -> epoch ms after which it may be dropped
-- ARGV[1]  owner      of the grant
-- ARGV[2]  fence      of the grant
-- ARGV[3]  place      the owner's name in the queue
-- ARGV[4]  wait_ms    what a deadline is counted in, > 0
--
-- Returns  {1}  the place is at the head
--          {0}  the grant has ended

local held = redis.pcall('HMGET', KEYS[1], ARGV[1], 'fence')
if held.err or not held[1] or held[2] ~= ARGV[2] then
  return {0}
end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('LREM', KEYS[2], 1, ARGV[3])
redis.call('ZADD', KEYS[3], deadline(redis.call('LLEN', KEYS[2]), now, tonumber(ARGV[4])), ARGV[3])
redis.call('LPUSH', KEYS[2], ARGV[3])
return {1}
