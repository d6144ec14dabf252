-- longest: the rest of the longest lease among the shared holders in fields, names and values in turn; 0: none is alive.
-- except is an owner that does not count. Holders whose lease has ended are removed, unless keep is true.

local function longest(lock, fields, except, keep)
  local most = 0
  for i = 1, #fields, 2 do
    local owner, holds = fields[i], tonumber(fields[i + 1])
    if holds and owner ~= except then
      local left = lease_of(lock, owner, holds)
      if left == 0 and not keep then
        redis.call('HDEL', lock, owner, '{' .. owner .. '}')
      end
      most = math.max(most, left)
    end
  end
  return most
end

-- sweep looks at two dozen holders, from a place at random on, and removes those whose lease has ended. While there are
-- such holders it looks at more, eight times at most: so calls that each add a holder cannot outrun it.
local function sweep(lock, random)
  local cursor = random
  for _ = 1, 8 do
    local page = redis.call('HSCAN', lock, cursor, 'COUNT', 48)
    local fields, timeouts = page[2], {}
    for i = 1, math.min(#fields, 512), 2 do -- a page has more if Redis packs large hashes
      if tonumber(fields[i + 1]) then
        timeouts[#timeouts + 1] = timeout_of(lock, fields[i]) .. '1'
      end
    end
    if redis.call('EXISTS', lock, unpack(timeouts)) > #timeouts then
      return
    end
    longest(lock, fields)
    cursor = page[1]
  end
end
