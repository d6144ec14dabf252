-- release_permit: an owner releases one permit: that of a fence, or for fence 0 its oldest (see permit_meant). Returns the script's
-- answer; nil: the key has no permits, but holds something else.

local function release_permit(publish, channel, queue, lock, owner, fence, field, request)
  local now = milliseconds(redis.call('TIME'))
  local permit, _, requests, by = nil, nil, nil, nil
  if left_of(lock) then
    permit, _, requests, by = permit_meant(lock, owner, fence, now, field, request)
  end
  if not permit then
    return limited(lock) and {-1} or nil
  end
  end_permits(publish, channel, queue, lock, {permit}, now)
  if field ~= '' then
    tell_others(lock, owner, tonumber(by), field, '{' .. string.gsub(requests, ' ', '{'))
  end
  return tonumber(by)
end
