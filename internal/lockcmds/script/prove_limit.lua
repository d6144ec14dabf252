-- prove_limit.lua: tell whether a permit is here, by a write that changes nothing; as prove.lua.
--
-- Returns  1  the permit is here
--          0  it is not: the lease has ended, or another server was promoted without it

local lock, timeouts, permits, owners = unpack(KEYS)
local permit, fence = unpack(ARGV)
--@ permits
local held, by = held_permit(permit, milliseconds(redis.call('TIME')))
if not held or by ~= fence or type(left_of()) ~= 'string' then
  return 0
end
redis.call('HSET', permits, permit, redis.call('HGET', permits, permit))
return 1
