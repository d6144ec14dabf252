-- take_permit: a permit is taken, with a new fence. named is 1 if its owner was named by OWNER; live is how many permits
-- others have, left how many are left, as a text; false: the string is missing.
--
-- Returns the fence, 1 if the counter was replaced, else nil, and how many permits are left.

local function take_permit(counter, time, permit, named, lease, limit, live, left, ours)
  --@ fence
  local kept = (tonumber(left) or 0) - 1
  redis.call('ZADD', timeouts, milliseconds(time) + lease, permit)
  if ours then
    kept = limit - live - 1
    redis.call('HSET', permits, permit, '#' .. text, text, permit, 'made', '1')
  else
    redis.call('SET', lock, kept, 'KEEPTTL')
    redis.call('HSET', permits, permit, '#' .. text, text, permit)
  end
  if named == '1' then
    redis.call('ZADD', owners, '0', owner_of_permit(permit) .. '{' .. text)
  end
  keep(ours, kept)
  if time[2] % 64 == 0 then
    --@ sweep_permits
    sweep_permits(time[2])
  end
  return fence, replaced, kept
end
