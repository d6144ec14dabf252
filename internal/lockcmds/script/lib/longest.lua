-- longest: the rest of the longest lease among the shared holders in fields, names and values in turn; 0: none is alive.
-- except is the name of a holder that does not count. Holders whose lease has ended are removed, unless keep is true.

local function longest(lock, fields, except, keep)
  local most = 0
  for i = 1, #fields, 2 do
    local name, holds = fields[i], tonumber(fields[i + 1])
    if holds and name ~= except then
      local left = lease_of(lock, name, holds)
      if left == 0 and not keep then
        forget(lock, name)
      end
      most = math.max(most, left)
    end
  end
  return most
end

-- longest_seen is longest of all holders; of a crowd it looks at a few, until one is alive, eight times at most. The second
-- result is whether it has seen all.
local function longest_seen(lock, except, keep)
  if redis.call('HLEN', lock) <= 200 then
    return longest(lock, redis.call('HGETALL', lock), except, keep), true
  end
  local cursor, most = 0, 0
  for _ = 1, 8 do
    local page = redis.call('HSCAN', lock, cursor, 'COUNT', 48)
    cursor, most = page[1], longest(lock, page[2], except)
    if most > 0 or cursor == '0' then
      return most, most == 0
    end
  end
  return 0, false
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
        timeouts[#timeouts + 1] = timeout_of(lock, fields[i])
      end
    end
    if redis.call('EXISTS', lock, unpack(timeouts)) > #timeouts then
      return
    end
    longest(lock, fields)
    cursor = page[1]
  end
end
