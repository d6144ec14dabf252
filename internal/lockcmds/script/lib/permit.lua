-- permit: what the calls about one permit have in common.

-- permit_with finds an owner's permit with a fence while it is held: the permit, the end of its lease and its last
-- requests; nil: there is none.
local function permit_with(timeouts, permits, owner, fence, now)
  local permit = redis.pcall('HGET', permits, fence)
  permit = type(permit) == 'string' and string.match(permit, '^[^{]*')
  if not permit or string.match(permit, '^(.*)#') ~= owner then
    return nil
  end
  local by, requests = string.match(redis.call('HGET', permits, permit) or '', '^#(%d+) (.*)$')
  local score = by == fence and redis.call('ZSCORE', timeouts, permit)
  if score and tonumber(score) > now then
    return permit, tonumber(score), requests
  end
end

-- permit_meant is permit_with; for fence 0 it is the oldest permit of the owner, but none that a later call of the
-- session has taken or extended: a late copy of a call does not find it. The fourth result is the fence.
local function permit_meant(timeouts, permits, owner, fence, now, field, request)
  if fence == '0' then
    local oldest, all = nil, redis.call('HGETALL', permits)
    for i = 1, #all, 2 do
      local number = tonumber(all[i])
      if number and (not oldest or number < oldest) then
        local _, _, requests = permit_with(timeouts, permits, owner, all[i], now)
        if requests and number_in(requests, field) <= tonumber(request) then
          oldest, fence = number, all[i]
        end
      end
    end
  end
  local permit, score, requests = permit_with(timeouts, permits, owner, fence, now)
  return permit, score, requests, fence
end

-- end_permits: these permits, which are held, are over. With the last one of all a lock of ours is free. If the user may
-- not publish, they stay, and the error says so.
local function end_permits(publish, channel, queue, lock, list, now)
  local timeouts, permits = permits_of(lock)
  if #list == held_permits(timeouts, now) and is_ours(lock, permits) then
    free(publish, channel, queue, lock)
    redis.call('DEL', timeouts, permits)
    return
  end
  wake(publish, channel, queue, lock)
  local n = 0
  for from = 1, #list, 1000 do
    n = n + remove_permits(timeouts, permits, {unpack(list, from, math.min(from + 999, #list))})
  end
  leave_more(publish, channel, lock, n)
end
