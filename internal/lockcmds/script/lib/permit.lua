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

-- permit_meant is permit_with; for fence 0 it is the oldest permit of a named owner, but none that a later call of the
-- session has taken or extended: a late copy of a call does not find it. The fourth result is the fence. An owner with
-- one session has no others than those which its proxy knows by their fences.
local function permit_meant(lock, owner, fence, now, field, request)
  local timeouts, permits, owners = permits_of(lock)
  local gone = fence == '0' and field ~= ''
  while gone do
    local some = redis.pcall('ZRANGEBYLEX', owners, '[' .. owner .. '{', '(' .. owner .. '|', 'LIMIT', 0, 64)
    gone = false
    for i = 1, #some do
      local by = string.sub(some[i], #owner + 2)
      local _, _, requests = permit_with(timeouts, permits, owner, by, now)
      if not requests then -- a client of Redisson has removed it, because its lease had ended
        redis.call('ZREM', owners, some[i])
        gone = true
      elseif number_in(requests, field) <= tonumber(request) then
        fence, gone = by, false
        break
      end
    end
  end
  local permit, score, requests = permit_with(timeouts, permits, owner, fence, now)
  return permit, score, requests, fence
end

-- end_permits: these permits, which are held, are over. With the last one of all a lock of ours is free. If the user may
-- not publish, they stay, and the error says so.
local function end_permits(publish, channel, queue, lock, list, now)
  local timeouts, permits, owners = permits_of(lock)
  if #list == held_permits(timeouts, now) and is_ours(lock, permits) then
    free(publish, channel, queue, lock)
    redis.call('DEL', timeouts, permits, owners)
    return
  end
  wake(publish, channel, queue, lock)
  local n = 0
  for from = 1, #list, 1000 do
    n = n + remove_permits(lock, {unpack(list, from, math.min(from + 999, #list))})
  end
  leave_more(publish, channel, lock, n)
end
