-- renew_limit.lua: renew leases of permits that are still ours, a batch in one call.
--
-- A lease that goes on for longer stays. However many permits of one lock there are, the lock is looked at and written
-- once. A key of another type counts as not ours: one bad key must not cost the others their lease.
--
-- Returns  {1 or 0, ...}  for each permit: renewed; or not ours any more

local lock, timeouts, permits, owners
--@ permits
local renewed, now = {}, milliseconds(redis.call('TIME'))
for at = 1, #KEYS / 4 do
  lock, timeouts, permits, owners = unpack(KEYS, 4 * at - 3, 4 * at)
  local rows, fences, later = {}, {}, {}
  for i = 1, #ARGV, 5 do
    local nth, owner, fence, lease, note = unpack(ARGV, i, i + 4)
    if tonumber(nth) == at then
      rows[#rows + 1], fences[#fences + 1] = {(i + 4) / 5, owner, tonumber(lease), note}, fence
    end
  end
  local known = type(left_of()) == 'string' and redis.pcall('HMGET', permits, unpack(fences)) or {}
  for n = 1, #fences do
    known[n] = string.match(known[n] or '', '^[^{]+') or ''
  end
  local scores = redis.pcall('ZMSCORE', timeouts, unpack(known))
  for n, row in ipairs(rows) do
    local i, owner, lease, note = unpack(row)
    local permit, score = known[n], tonumber(scores[n] or 0)
    local ours = score >= now and owner_of_permit(permit) == owner
    renewed[i] = ours and 1 or 0
    if ours and note ~= '' then
      redis.call('HSET', permits, fences[n], permit .. '{' .. note)
    end
    if ours and score < now + lease then
      later[#later + 1], later[#later + 2] = now + lease, permit
    end
  end
  if #later > 0 then
    redis.call('ZADD', timeouts, unpack(later))
    keep(is_ours())
  end
end
return renewed
