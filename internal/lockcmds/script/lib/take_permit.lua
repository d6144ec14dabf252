-- take_permit: a permit is taken, with a new fence. requests is the text of the acquire's number; live is how many
-- permits others have, left how many are left, as a text; nil: the string is missing.
--
-- Returns the fence, 1 if the counter was replaced, else nil, and how many permits are left.

local function take_permit(lock, counter, time, permit, requests, lease, limit, live, left, ours)
  --@ fence
  local timeouts, permits, owners = permits_of(lock)
  local now, kept, owner = milliseconds(time), tonumber(left or 0) - 1, named_owner(permit)
  redis.call('ZADD', timeouts, now + lease, permit)
  if ours then
    kept = limit - live - 1
    redis.call('HSET', permits, permit, '#' .. text .. ' ' .. requests, text, permit, 'made', '1')
  else
    redis.call('SET', lock, kept, 'KEEPTTL')
    redis.call('HSET', permits, permit, '#' .. text .. ' ' .. requests, text, permit)
  end
  if owner then
    redis.call('ZADD', owners, '0', owner .. '{' .. text)
  end
  keep(lock, ours, kept)
  if time[2] % 64 == 0 then
    --@ sweep_permits
    sweep_permits(lock, time[2])
  end
  return fence, replaced, kept
end
