-- acquire.lua: take a free lock that is not reserved, or deepen a hold of the owner.
--
-- Run again, the script finds its grant, and sets the lease anew. See lib/hash.lua.
--
-- KEYS[1]  lock      hash, see lib/hash.lua; exists only while held
-- KEYS[2]  fence     counter of all locks, or of this hash slot; never expires, never goes back
-- KEYS[3]  channel   base channel of the lock; as a key it says for which place the free lock is kept
-- KEYS[4]  queue     list of places of waiters, first to ask at the head
-- ARGV[1]  owner     opaque, non-empty, not 'fence' or 'mode', without braces
-- ARGV[2]  lease_ms  lease length, > 0
-- ARGV[3]  publish   PUBLISH, or SPUBLISH in a cluster
-- ARGV[4]  name      of the acquire, for a named owner; absent: the owner has no other acquire
-- ARGV[5]  field     for a named owner, see by_with in lib/hold.lua
-- ARGV[6]  tell      channel on which other waiters of a named owner are told of a first hold
--
-- Returns  {1, fence, holds, odd, 0}  acquired
--          fence                      acquired, a first hold; or {1, fence, 1, 1}: the counter held no fence
--          {0, pttl_ms}               held by another owner; -1: without a TTL; -2: free, but kept for a waiter
--          {0, pttl_ms, 0, 1}         the same, in the form of Redisson's read and write locks, which sharers use
--          {0, -4}                    the owner holds it shared, and would wait for itself

local lock, counter, owner, lease, pttl = KEYS[1], KEYS[2], ARGV[1], ARGV[2], -2
if redis.call('EXISTS', lock, KEYS[3]) > 0 then -- usually neither exists, and this is one call less
  --@ turn
  pttl = redis.call('PTTL', lock)
  if pttl == -2 and kept_for(KEYS[3], lock) then
    return {0, -2}
  end
end
if pttl == -2 then
  if ARGV[6] then
    redis.call(ARGV[3], ARGV[6], '0')
  end
  local time = redis.call('TIME')
  --@ fence
  redis.call('HSET', lock, owner, '1', 'fence', text, 'mode', 'lock')
  if ARGV[4] then
    redis.call('HSET', lock, '{by}', ARGV[4])
  end
  --@ expire
  return replaced and {1, fence, 1, replaced} or fence
end

-- The usual way ends here: no function is made on it.
--@ hash
--@ hold
--@ grant
--@ deepen
--@ head
--@ wake
--@ shortened
local answer, mode = deepen(lock, counter, owner, lease, ARGV[4] or '', ARGV[5])
if not answer and mode == 'read' then
  --@ longest
  --@ rest_of
  if redis.call('HLEN', lock) > 200 then -- the lock may outlast a crowd; see lib/leave_shared.lua
    pttl = rest_of(lock, pttl)
    if pttl == -2 then
      local fence, odd = grant(lock, counter, owner, lease, redis.call('TIME'), ARGV[4] or '')
      return odd and {1, fence, 1, odd} or fence
    end
  end
elseif answer and answer[1] == 1 then
  shortened(ARGV[3], KEYS[3], KEYS[4], lock, pttl)
end
local form = mode and mode ~= 'lock' and 1 or nil
return answer or {0, pttl, form and 0, form}
