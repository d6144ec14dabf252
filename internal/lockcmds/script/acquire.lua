-- acquire.lua: take a free lock that is not reserved, or deepen a hold of the owner.
--
-- Run again, the script finds its grant, and sets the lease anew. See lib/hash.lua.
--
-- Returns  {1, fence, holds, odd, 0}  acquired
--          fence                      acquired, a first hold; or {1, fence, 1, 1}: the counter held no fence
--          {0, pttl_ms}               held by another owner; -1: without a TTL; -2: free, but kept for a waiter
--          {0, pttl_ms, 0, 1}         the same, in the form of Redisson's read and write locks, which sharers use
--          {0, -4}                    the owner holds it shared, and would wait for itself

local lock, counter, channel, queue = unpack(KEYS)
local owner, lease, publish, name, field, tell = unpack(ARGV)
local pttl = -2
if redis.call('EXISTS', lock, channel) > 0 then -- usually neither exists, and this is one call less
  --@ turn
  pttl = redis.call('PTTL', lock)
  if pttl == -2 and kept_for(channel, lock) then
    return {0, -2}
  end
end
if pttl == -2 then
  if tell then
    redis.call(publish, tell, '0')
  end
  local time = redis.call('TIME')
  --@ fence
  redis.call('HSET', lock, owner, '1', 'fence', text, 'mode', 'lock')
  if name then
    redis.call('HSET', lock, '{by}', name)
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
local answer, mode = deepen(lock, counter, owner, lease, name or '', field)
if not answer and mode == 'read' then
  --@ longest
  --@ rest_of
  if redis.call('HLEN', lock) > 200 then -- the lock may outlast a crowd; see lib/leave_shared.lua
    pttl = rest_of(lock, pttl)
    if pttl == -2 then
      local fence, odd = grant(lock, counter, owner, lease, redis.call('TIME'), name or '')
      return odd and {1, fence, 1, odd} or fence
    end
  end
elseif answer and answer[1] == 1 then
  shortened(publish, channel, queue, lock, pttl)
end
local form = mode and mode ~= 'lock' and 1 or nil
return answer or {0, pttl, form and 0, form}
