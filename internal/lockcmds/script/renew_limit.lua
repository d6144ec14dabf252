-- renew_limit.lua: renew leases of permits that are still ours, a batch in one call.
--
-- A lease that goes on for longer stays. However many permits of one lock there are, the lock is looked at and written
-- once. A key of another type counts as not ours: one bad key must not cost the others their lease.
--
-- KEYS[1..4n] lock, timeouts, permits, owners  of each lock; see lib/permits.lua
-- ARGV[1..5n] lock, owner, fence, lease_ms, note  for each permit; lock: its place; lease_ms 0: it stays; note:
--                                     "#text", or empty: it stays
--
-- Returns  {1 or 0, ...}  for each permit: renewed; or not ours any more

local lock, timeouts, permits, owners
--@ permits
local renewed, now = {}, milliseconds(redis.call('TIME'))
for at = 1, #KEYS / 4 do
  lock, timeouts, permits, owners = KEYS[4 * at - 3], KEYS[4 * at - 2], KEYS[4 * at - 1], KEYS[4 * at]
  local rows, fences, later = {}, {}, {}
  for i = 1, #ARGV, 5 do
    if tonumber(ARGV[i]) == at then
      rows[#rows + 1], fences[#fences + 1] = i, ARGV[i + 2]
    end
  end
  local known = type(left_of()) == 'string' and redis.pcall('HMGET', permits, unpack(fences)) or {}
  for n = 1, #fences do
    known[n] = string.match(known[n] or '', '^[^{]+') or ''
  end
  local scores = redis.pcall('ZMSCORE', timeouts, unpack(known))
  for n, i in ipairs(rows) do
    local permit, score, lease = known[n], tonumber(scores[n] or 0), tonumber(ARGV[i + 3])
    local ours = score >= now and owner_of_permit(permit) == ARGV[i + 1]
    renewed[(i + 4) / 5] = ours and 1 or 0
    if ours and ARGV[i + 4] ~= '' then
      redis.call('HSET', permits, fences[n], permit .. '{' .. ARGV[i + 4])
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
