-- renew.lua: renew leases that are still ours, a batch in one call.
--
-- A lease that goes on for longer stays: another proxy may have promised it to the same owner.
-- Run again the script does the same. It writes no counts, and tells how they are.
-- A key that is no lock hash counts as not ours: one bad key must not cost the others their lease.
--
-- If shared holds are renewed, the keys are pairs: a lock and the lease of the hold. Redis refuses the call while only
-- one of them has moved to another server. Without its lease a hold would count as over.
--
-- KEYS[1..n]  locks  hashes, see lib/hash.lua; exist only while held
-- ARGV[1..4n] owner, fence, lease_ms, note  for each lock; fence 0: any; lease_ms 0: it stays; note: "#text",
--                                     or empty: it stays
-- ARGV[..]    shared, behind those: 1: the keys are pairs; absent: they are not
--
-- Returns  {holds or 0, ...}  for each lock: renewed, how many holds its owner has; or 0, not ours any more

local renewed, shared = {}, #ARGV % 4 == 1
local keys = shared and 2 or 1
for i = 1, math.floor(#ARGV / 4) do
  local lock = KEYS[keys * (i - 1) + 1]
  local owner, fence, lease, note = ARGV[4 * i - 3], ARGV[4 * i - 2], ARGV[4 * i - 1], ARGV[4 * i]
  local held = hold_of(lock, owner, '')
  if not held.err and held[1] and (fence == '0' or held[2] == fence) then
    renewed[i] = math.max(tonumber(held[1]) or 1, 1)
    if held[4] == 'read' then
      lengthen_shared(lock, owner, lease)
      if note ~= '' and shared then
        redis.call('SET', KEYS[2 * i], note, 'XX', 'KEEPTTL')
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
