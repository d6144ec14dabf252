-- info.lua: the holders of a lock.
--
-- The places that plain waiters share, one for each proxy, are no fair waiters. Beyond 1,000 places they count all the
-- same, so that the question stays cheap. For the same reason about 1,000 holders are told of at most. now is that of
-- lib/now.lua.
--
-- Returns  {pttl_ms, fair_waiters, now, mode, limit, owner, holds, fence, lease_ms, note, owner, ...}
--              held; five for each holder; owner, mode and note are text; fence 0: taken without one; limit: how
--              many may hold a lock of the mode limit; note: "#text", or another text if there is none
--          {}  free

local lock, queue = unpack(KEYS)
local owner, fence = unpack(ARGV)

local held, mode = holders_of(lock, owner, nil, 1000)
local limit, longest = 0, nil
if held.err then
  --@ permit_keys
  local timeouts, permits, owners = permits_of(lock)
  --@ permits
  --@ permit_holders
  held, limit = permit_holders(fence, 1000)
  mode, longest = 'limit', #held > 0 and held[#held][4] or 0
end
if held.err or #held == 0 then
  return held
end
local waiters = redis.pcall('LLEN', queue)
if type(waiters) ~= 'number' then
  waiters = 0 -- the key holds something else
elseif waiters <= 1000 then
  for _, place in ipairs(redis.call('LRANGE', queue, 0, -1)) do
    if string.sub(place, 37, 43) == ':plain-' then
      waiters = waiters - 1
    end
  end
end
local answer = {longest or redis.call('PTTL', lock), waiters, now(), mode or '', limit}
for _, one in ipairs(held) do
  for i = 1, 4 do
    answer[#answer + 1] = one[i]
  end
  answer[#answer + 1] = one[5] or ''
end
return answer
