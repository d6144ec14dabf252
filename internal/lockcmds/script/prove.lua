-- prove.lua: tell whether a grant is here, by a write that changes nothing.
--
-- WAIT counts the replicas that have the last write of its connection. A WAIT behind this script on the same connection
-- counts those that have the grant: the grant was there before the write. Run again the script does the same.
--
-- Returns  1  the grant is here
--          0  it is not: the lease has ended, or another server was promoted without it

local lock, timeout = unpack(KEYS)
local owner, fence, holds = unpack(ARGV)

local held = hold_of(lock, owner)
if held.err or not held[1] or held[2] ~= fence or (tonumber(held[1]) or 0) < tonumber(holds) then
  return 0
end
if held[4] == 'read' then
  put_shared(lock, owner, held[2], held[1], held[3])
else
  redis.call('HSET', lock, 'fence', fence)
end
return 1
