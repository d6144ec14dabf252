-- force.lua: end grants of a lock of any holder, wake plain waiters and the fair head, and tell of the loss.
--
-- The holder may have any name, and be at any proxy, so all proxies are told. A user without the right to a channel
-- ends the grants all the same.
--
-- Returns  {owner, fence, owner, ...}  whose grants were ended; the owner is text; fence 0: it was taken without one
--          {}                          there was none

local lock, channel, queue = unpack(KEYS)
local publish, fence, lost, forced, owner = unpack(ARGV)
local all, mode = holders_of(lock, owner, fence)
local ended, over, left, end_all = {}, {}, 0, nil
if all.err then
  --@ permit_keys
  local timeouts, permits, owners = permits_of(lock)
  --@ permits
  --@ permit_holders
  --@ end_permits
  all, mode = permit_holders(tonumber(fence) > 0 and fence or nil), 'limit'
  if all.err then
    return all
  end
  end_all = function()
    end_permits(publish, channel, queue, over, milliseconds(redis.call('TIME')))
  end
end
for _, held in ipairs(all) do
  if (fence == '-1' or held[3] == tonumber(fence)) and (not owner or held[1] == owner) then
    ended[#ended + 1] = held[1]
    ended[#ended + 1] = held[3]
    if mode == 'limit' then
      over[#over + 1] = held[6]
    elseif mode == 'read' then
      left = math.max(left, held[4])
      end_lease(lock, held[1])
    end
  end
end
if #over > 0 then
  end_all()
elseif mode == 'read' and (#ended > 0 or #all == 0 and fence == '-1') then -- or the leases of all holders have ended
  settle_shared(publish, channel, queue, lock, left)
elseif #ended > 0 then
  free(publish, channel, queue, lock)
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
