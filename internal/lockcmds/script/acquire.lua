-- acquire.lua: take a free lock that is not reserved, or deepen a hold of the owner.
--
-- Run again, or overtaken by a later call of the session, the script answers with the grant as it is. See
-- lib/hash.lua.
--
-- KEYS[1]  lock      hash, see lib/hash.lua; exists only while held
-- KEYS[2]  fence     counter of all locks, or of this hash slot; never expires, never goes back
-- KEYS[3]  channel   base channel of the lock; as a key it says for which place the free lock is kept
-- KEYS[4]  queue     list of places of waiters, first to ask at the head
-- ARGV[1]  owner     opaque, non-empty, not 'fence' or 'mode', without braces
-- ARGV[2]  lease_ms  lease length, > 0
-- ARGV[3]  request   number of this call, larger than those of earlier calls of the session; of a named owner its name
-- ARGV[4]  publish   PUBLISH, or SPUBLISH in a cluster
-- ARGV[5]  fence     of the grant that the session has; 0 or absent: none
-- ARGV[6]  holds     of the owner's only session after this, if that is the grant; absent: 1
-- ARGV[7]  field     for a named owner, see by_with in lib/hold.lua; empty or absent: the owner has one session
-- ARGV[8]  tell      channel on which other waiters of the owner are told of a first hold; absent: there are none
--
-- Returns  {1, fence, holds, odd, 0}     acquired
--          {1, fence, holds, odd, 0, 1}  overtaken by a later call of the session
--          fence                         acquired, a first hold; or {1, fence, 1, 1}: the counter held no fence
--          {0, pttl_ms}                  held by another owner; -1: without a TTL; -2: free, but kept for a waiter
--          {0, pttl_ms, 0, 1}            the same, in the form of Redisson's read and write locks, which sharers use
--          {0, -4}                       the owner holds it shared, and would wait for itself

local pttl = -2
if redis.call('EXISTS', KEYS[1], KEYS[3]) > 0 then -- usually neither exists, and this is one call less
  --@ turn
  pttl = redis.call('PTTL', KEYS[1])
  if pttl == -2 and kept_for(KEYS[3], KEYS[1]) then
    return {0, -2}
  end
end
if pttl == -2 then
  if ARGV[8] then
    redis.call(ARGV[4], ARGV[8], '0')
  end
  local fence, odd = grant(KEYS[1], KEYS[2], ARGV[1], ARGV[2], redis.call('TIME'), ARGV[3], ARGV[7] or '')
  return odd and {1, fence, 1, odd} or fence
end

-- The usual way ends here: the functions behind it are not even made.
--@ hash
--@ hold
--@ deepen
--@ head
--@ wake
--@ shortened
local answer, mode =
  deepen(KEYS[1], KEYS[2], ARGV[1], ARGV[2], ARGV[3], ARGV[5] or '0', ARGV[6] or '1', ARGV[7] or '')
if not answer and mode == 'read' then
  --@ longest
  --@ rest_of
  if redis.call('HLEN', KEYS[1]) > 200 then -- the lock may outlast a crowd; see lib/leave_shared.lua
    pttl = rest_of(KEYS[1], pttl)
    if pttl == -2 then
      local fence, odd = grant(KEYS[1], KEYS[2], ARGV[1], ARGV[2], redis.call('TIME'), ARGV[3], ARGV[7] or '')
      return odd and {1, fence, 1, odd} or fence
    end
  end
elseif answer and answer[1] == 1 then
  shortened(ARGV[4], KEYS[3], KEYS[4], KEYS[1], pttl)
end
local form = mode and mode ~= 'lock' and 1 or nil
return answer or {0, pttl, form and 0, form}
