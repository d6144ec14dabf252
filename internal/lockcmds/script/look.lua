-- look.lua: wake those in the queue of a free lock that is not kept any more.
--
-- It was kept for the first of them that listens, which has not come.
--
-- Returns  {1}  it is kept: look again
--          {0}  it is held, or they have been told

local lock, channel, queue = unpack(KEYS)
local publish = unpack(ARGV)

if redis.call('EXISTS', lock) == 1 then
  return {0}
elseif kept_for(channel, lock) then
  return {1}
end
local places = redis.pcall('LRANGE', queue, '0', '15')
for _, place in ipairs(places.err and {} or places) do
  redis.call(publish, channel .. ':' .. place, '0')
end
return {0}
