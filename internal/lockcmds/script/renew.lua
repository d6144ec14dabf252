-- renew.lua: renew leases that are still ours, a batch in one call.
--
-- A lease that goes on for longer stays: another proxy may have promised it to the same owner.
-- Run again the script does the same. It writes no counts, and tells how they are.
-- A key that is no lock hash counts as not ours: one bad key must not cost the others their lease.
--
-- If shared holds are renewed, the keys are pairs: a lock and the lease of the hold. Redis refuses the call while only
-- one of them has moved to another server. Without its lease a hold would count as over.
--
-- Returns  {holds or 0, ...}  for each lock: renewed, how many holds its owner has; or 0, not ours any more

local renewed, rows = {}, #ARGV / 4
local width = #KEYS / rows
for i = 1, rows do
  local lock, timeout = unpack(KEYS, width * (i - 1) + 1, width * i)
  local owner, fence, lease, note = unpack(ARGV, 4 * i - 3, 4 * i)
  local held = hold_of(lock, owner, '')
  if not held.err and held[1] and (fence == '0' or held[2] == fence) then
    renewed[i] = math.max(tonumber(held[1]) or 1, 1)
    if held[4] == 'read' then
      lengthen_shared(lock, owner, lease)
      if note ~= '' and timeout then
        redis.call('SET', timeout, note, 'XX', 'KEEPTTL')
      end
    else
      lengthen(lock, lease)
      if note ~= '' then
        redis.call('HSET', lock, '{note}', note)
      end
    end
  else
    renewed[i] = 0
  end
end
return renewed
