-- extend_permit: the lease of a permit is set anew; fence is as in release_permit. A copy, or a call that a later one
-- of its session has overtaken, changes nothing. Returns as release_permit does.

local function extend_permit(publish, channel, queue, lock, owner, fence, lease, request, field)
  local timeouts, permits = permits_of(lock)
  local now = milliseconds(redis.call('TIME'))
  local permit, score, requests, by = nil, nil, nil, nil
  if left_of(lock) then
    permit, score, requests, by = permit_meant(lock, owner, fence, now, field, request)
  end
  if not permit then
    return limited(lock) and {-1} or nil
  end
  local last, ends = number_in(requests, field), now + lease
  if last < tonumber(request) or last == tonumber(request) and score < ends then
    redis.call('ZADD', timeouts, ends, permit)
    redis.call('HSET', permits, permit, '#' .. by .. ' ' .. requests_with(requests, field, request))
    keep(lock, is_ours(lock, permits))
    if ends < score then
      wake(publish, channel, queue, lock)
    end
  end
  return {1, tonumber(by), 1}
end
