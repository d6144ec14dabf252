-- longest: the rest of the longest lease among the shared holders in fields, names and values in turn; 0: none is alive.
-- except is an owner that does not count. Holders whose lease has ended are removed.
--
-- A holder of Redisson's has a key for each of its holds, ours has one. A count that was written by hand is not counted to
-- its end.

local function longest(lock, fields, except)
  local most = 0
  for i = 1, #fields, 2 do
    local owner, holds = fields[i], tonumber(fields[i + 1])
    if holds and owner ~= except then
      local left, timeout = 0, timeout_of(lock, owner)
      for n = 1, math.min(holds, 64) do
        left = math.max(left, redis.call('PTTL', timeout .. n))
      end
      if left == 0 then
        redis.call('HDEL', lock, owner, '{' .. owner .. '}')
      end
      most = math.max(most, left)
    end
  end
  return most
end

-- some_alive does the same for a few of the holders of a crowd; 0: none of them is alive, or there is no crowd.
local function some_alive(lock, except)
  if redis.call('HLEN', lock) <= 16 then
    return 0
  end
  local some = redis.call('HRANDFIELD', lock, 8, 'WITHVALUES')
  for i = 1, #some, 2 do
    local owner = string.match(some[i], '^{(.+)}$')
    if owner then -- the owner has another field, but a holder must not be missed
      some[i], some[i + 1] = owner, 1
    end
  end
  return longest(lock, some, except)
end
