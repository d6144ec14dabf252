-- renew_permits: the leases of permits of one lock are this long at least. The list has for each of them its place in
-- renewed, the owner, the fence, the lease, and the note; see renew.lua. However many they are, their lock is looked at and written once.

local function renew_permits(lock, list, renewed)
  local timeouts, permits = permits_of(lock)
  local fences, found, now = {}, {}, milliseconds(redis.call('TIME'))
  for i, one in ipairs(list) do
    fences[i], renewed[one[1]] = one[3], 0
  end
  local known = left_of(lock) and redis.pcall('HMGET', permits, unpack(fences)) or {}
  for i, one in ipairs(list) do
    local permit = known[i] and string.match(known[i], '^[^{]*')
    if permit and string.match(permit, '^(.*)#') == one[2] then
      found[#found + 1] = permit
      one.at = #found
    end
  end
  if #found == 0 then
    return
  end
  local records, scores = redis.call('HMGET', permits, unpack(found)), redis.pcall('ZMSCORE', timeouts, unpack(found))
  local later = {}
  for _, one in ipairs(list) do
    local score = one.at and scores[one.at]
    if score and tonumber(score) > now and string.match(records[one.at] or '', '^#(%d+) ') == one[3] then
      renewed[one[1]] = 1
      if one[5] ~= '' then
        redis.call('HSET', permits, one[3], found[one.at] .. '{' .. one[5])
      end
      if tonumber(score) < now + one[4] then
        later[#later + 1] = now + one[4]
        later[#later + 1] = found[one.at]
      end
    end
  end
  if #later > 0 then
    redis.call('ZADD', timeouts, unpack(later))
    keep(lock, is_ours(lock, permits))
  end
end
