-- prove.lua: tell whether a grant is here, by a write that changes nothing.
--
-- WAIT counts the replicas that have the last write of its connection. A WAIT behind this script on the same connection
-- counts those that have the grant: the grant was there before the write. Run again the script does the same.
--
-- KEYS[1]  lock   hash, see lib/hash.lua; exists only while held
-- KEYS[2]  lease  of the shared hold; as in renew.lua
-- ARGV[1]  owner  of the grant
-- ARGV[2]  fence  of the grant
-- ARGV[3]  holds  of the owner behind the acquire, which may have deepened the grant
--
-- Returns  1  the grant is here
--          0  it is not: the lease has ended, or another server was promoted without it

local held = hold_of(KEYS[1], ARGV[1])
if held.err or not held[1] or held[2] ~= ARGV[2] or (tonumber(held[1]) or 0) < tonumber(ARGV[3]) then
  return 0
end
if held[4] == 'read' then
  put_shared(KEYS[1], ARGV[1], held[2], held[1], held[3])
else
  redis.call('HSET', KEYS[1], 'fence', ARGV[2])
end
return 1
