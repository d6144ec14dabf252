--@ info: the holders of a lock.
--
-- The places that plain waiters share, one for each proxy, are no fair waiters. Beyond 1,000 places they count all the
-- same, so that the question stays cheap. For the same reason about 1,000 holders are told of at most. now is that of
-- clock.
--
-- Returns  {pttl_ms, fair_waiters, now, mode, limit, owner, holds, fence, lease_ms, note, owner, ...}
--              held; five for each holder; owner, mode and note are text; fence 0: taken without one; limit: how
--              many may hold a lock of the mode limit; note: "#text", or another text if there is none
--          {}  free

local lock, queue = unpack(KEYS)
local owner, fence = unpack(ARGV)
local timeouts, permits, owners
--@
local held, mode = holders_of(owner, nil, 1000)
local limit, longest = 0, nil
if held.err then
  --@
  timeouts, permits, owners = permits_of()
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
local answer = {longest or redis.call('PTTL', lock), waiters, clock(), mode or '', limit}
for _, one in ipairs(held) do
  for i = 1, 4 do
    answer[#answer + 1] = one[i]
  end
  answer[#answer + 1] = one[5] or ''
end
return answer

--@ force: end grants of a lock of any holder, wake plain waiters and the fair head, and tell of the loss.
--
-- The holder may have any name, and be at any proxy, so all proxies are told. A user without the right to a channel
-- ends the grants all the same.
--
-- Returns  {owner, fence, owner, ...}  whose grants were ended; the owner is text; fence 0: it was taken without one
--          {}                          there was none

local lock, channel, queue = unpack(KEYS)
local publish, fence, lost, forced, owner = unpack(ARGV)
local timeouts, permits, owners
--@
local all, mode = holders_of(owner, fence)
local ended, over, left = {}, {}, 0
if all.err then
  --@
  timeouts, permits, owners = permits_of()
  all, mode = permit_holders(tonumber(fence) > 0 and fence or nil), 'limit'
  if all.err then
    return all
  end
end
for _, held in ipairs(all) do
  if (fence == '-1' or held[3] == tonumber(fence)) and (not owner or held[1] == owner) then
    ended[#ended + 1] = held[1]
    ended[#ended + 1] = held[3]
    if mode == 'limit' then
      over[#over + 1] = held[6]
    elseif mode == 'read' then
      --@
      left = math.max(left, held[4])
      end_hold(held[1])
    end
  end
end
if #over > 0 then
  --@
  end_permits(over, milliseconds(redis.call('TIME')))
elseif mode == 'read' and (#ended > 0 or #all == 0 and fence == '-1') then -- or the leases of all holders have ended
  --@
  settle_shared(left)
elseif #ended > 0 then
  --@
  free()
end
for i = 1, #ended, 2 do
  if ended[i + 1] > 0 then
    local fence = string.format('%.0f', ended[i + 1])
    if lost == '' then
      fence = '-' .. fence .. ' ' .. redis.sha1hex(ended[i] .. ' ' .. fence) -- a proof: see Forced.Message
    else
      redis.pcall('PUBLISH', lost, fence .. ' forced')
    end
    redis.pcall('PUBLISH', forced, fence .. ' ' .. lock)
  end
end
return ended

--@ tell: publish messages that no other script has published. One that the user may not publish keeps back no other.
--
-- Returns  {1}, or the first refusal

local lock = unpack(KEYS)
--@
local refused
for i = 1, #ARGV, 2 do
  local to, text = unpack(ARGV, i, i + 1)
  local answer = redis.pcall('PUBLISH', to, text)
  refused = refused or type(answer) == 'table' and answer
end
return refused or {1}

--@ ask: nothing. Redis answers whether the client may run scripts.
--
-- Returns  {now}  it may; now is that of clock

--@
return {clock()}
