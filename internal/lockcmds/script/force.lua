-- force.lua: end grants of a lock of any holder, wake plain waiters and the fair head, and tell of the loss.
--
-- The holder may have any name, and be at any proxy, so all proxies are told. A user without the right to a channel
-- ends the grants all the same.
--
-- KEYS[1]  lock     hash, see lib/hash.lua; exists only while held. Or a string, see lib/permits.lua
-- KEYS[2]  channel  base channel of the lock; a fair waiter listens on channel:place
-- KEYS[3]  queue    list of places of waiters, first to ask at the head
-- ARGV[1]  publish  PUBLISH, or SPUBLISH in a cluster
-- ARGV[2]  fence    of the grant that is meant; 0: one without a fence; -1: any
-- ARGV[3]  lost     channel on which losses of the lock are told; empty: an end by the handle is none
-- ARGV[4]  forced   channel on which proxies are told of grants that were ended by force, or by their handle
-- ARGV[5]  owner    whose grants are meant; absent: any
--
-- Returns  {owner, fence, owner, ...}  whose grants were ended; the owner is text; fence 0: it was taken without one
--          {}                          there was none

local lock, publish, channel, queue = KEYS[1], ARGV[1], KEYS[2], KEYS[3]
local all, mode = holders_of(lock, ARGV[5], ARGV[2])
local ended, over, left, end_all = {}, {}, 0, nil
if all.err then
  --@ permit_keys
  local timeouts, permits, owners = permits_of(lock)
  --@ permits
  --@ permit_holders
  --@ end_permits
  all, mode = permit_holders(tonumber(ARGV[2]) > 0 and ARGV[2] or nil), 'limit'
  if all.err then
    return all
  end
  end_all = function()
    end_permits(publish, channel, queue, over, milliseconds(redis.call('TIME')))
  end
end
for _, held in ipairs(all) do
  if (ARGV[2] == '-1' or held[3] == tonumber(ARGV[2])) and (not ARGV[5] or held[1] == ARGV[5]) then
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
elseif mode == 'read' and (#ended > 0 or #all == 0 and ARGV[2] == '-1') then -- or the leases of all holders have ended
  settle_shared(publish, channel, queue, lock, left)
elseif #ended > 0 then
  free(publish, channel, queue, lock)
end
for i = 1, #ended, 2 do
  if ended[i + 1] > 0 then
    local fence = string.format('%.0f', ended[i + 1])
    if ARGV[3] == '' then
      fence = '-' .. fence .. ' ' .. redis.sha1hex(ended[i] .. ' ' .. fence) -- a proof: see Forced.Message
    else
      redis.pcall('PUBLISH', ARGV[3], fence .. ' forced')
    end
    redis.pcall('PUBLISH', ARGV[4], fence .. ' ' .. lock)
  end
end
return ended
