-- prove_limit.lua: tell whether a permit is here, by a write that changes nothing; as prove.lua.
--
-- KEYS[1]  lock      string, see lib/permits.lua
-- KEYS[2]  timeouts  leases of the permits
-- KEYS[3]  permits   their names and fences
-- KEYS[4]  owners    those of named owners
-- ARGV[1]  permit    its name
-- ARGV[2]  fence     of the grant
--
-- Returns  1  the permit is here
--          0  it is not: the lease has ended, or another server was promoted without it

local lock, timeouts, permits, owners = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
--@ permits
local permit, fence = held_permit(ARGV[1], milliseconds(redis.call('TIME')))
if not permit or fence ~= ARGV[2] or type(left_of()) ~= 'string' then
  return 0
end
redis.call('HSET', permits, permit, redis.call('HGET', permits, permit))
return 1
