-- permits: a lock that at most n hold at the same time, in the layout of Redisson's permit semaphore.
--
--   lock            string: how many permits are left, as Redisson's clients see it
--   {lock}:timeout  zset: permit -> epoch ms at which its lease ends. A permit of ours is "owner#request", or for an
--                   owner that was named by OWNER "owner#session-request". One of Redisson's is bytes of its own
--   {lock}:permits  hash of our permits: permit -> "#fence requests", see lib/requests.lua; fence -> permit, or
--                   "permit{#note"; made -> 1 if the string is ours
--   {lock}:owners   zset without scores: "owner{fence" of each permit of an owner that was named by OWNER, in that order
--
-- A permit is held until its lease has ended, while the string is there. A string of ours has a TTL, and is deleted
-- with the last permit. Redisson's has none, and stays.
--
-- A permit is found by its fence, or as one of an owner, never by reading all.

-- permits_of returns the names of the zset, the hash, and the zset of owners. By Redisson's rule the locks "a" and "{a}"
-- share the first one.
local function permits_of(lock)
  local base = string.find(lock, '{', 1, true) and lock or '{' .. lock .. '}'
  local own = string.find(lock, '^{[^{]+}$') and '{}' or ''
  return base .. ':timeout', base .. ':permits' .. own, base .. ':owners' .. own
end

-- permit_of is the permit that an acquire takes.
local function permit_of(owner, field, request)
  return owner .. '#' .. (field == '' and '' or string.sub(field, 2, -2) .. '-') .. request
end

-- named_owner is the owner of a permit, if it was named by OWNER.
local function named_owner(permit)
  return string.match(permit, '^(.*)#[^#]*%-[^#]*$')
end

-- left_of is how many permits are left, as a text; nil: the key holds no such number. Redisson's has 32 bits.
local function left_of(lock)
  local left = redis.pcall('GET', lock)
  return type(left) == 'string' and #left <= 11 and string.find(left, '^-?%d+$') and left or nil
end

local function milliseconds(time)
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

-- rest_until is the rest of a lease in ms; -1: it does not end in our days.
local function rest_until(score, now)
  local rest = tonumber(score) - now
  return rest < 1e12 and math.max(rest, 0) or -1
end

local function held_permits(timeouts, now)
  return redis.call('ZCOUNT', timeouts, '(' .. now, '+inf')
end

-- first_end is the rest of the lease that ends first, in ms. If Redis was stopped for longer than the lease of a permit
-- that it has just granted, that has ended already.
local function first_end(timeouts, now)
  return rest_until(redis.call('ZRANGE', timeouts, '0', '0', 'WITHSCORES')[2] or now, now)
end

-- is_ours reports whether lockproxy has made the string. One with that mark and no TTL was made anew by Redisson.
local function is_ours(lock, permits)
  return redis.pcall('HGET', permits, 'made') == '1' and redis.call('PTTL', lock) >= 0
end

-- keep: the keys last as long as the longest lease. All end in the same millisecond: the string alone would count as
-- another program's. If the string is not ours, the zset lasts as long as the string. left is how many permits are left,
-- if the string is to be written.
local function keep(lock, ours, left)
  local timeouts, permits, owners = permits_of(lock)
  local ends = redis.call('ZRANGE', timeouts, '-1', '-1', 'WITHSCORES')[2]
  ends = string.format('%.0f', math.min(tonumber(ends), 9e15))
  redis.call('PEXPIREAT', permits, ends)
  redis.call('PEXPIREAT', owners, ends)
  if ours then
    redis.call('PEXPIREAT', timeouts, ends)
    if left then
      redis.call('SET', lock, left, 'PXAT', ends)
    else
      redis.call('PEXPIREAT', lock, ends)
    end
  else
    local rest = redis.call('PTTL', lock)
    if rest > 0 then
      redis.call('PEXPIRE', timeouts, rest)
    end
  end
end

-- remove_permits returns how many of the permits there were. Some may be Redisson's.
local function remove_permits(lock, list)
  local timeouts, permits, owners = permits_of(lock)
  local fields, gone = {}, {}
  for i, record in ipairs(redis.call('HMGET', permits, unpack(list))) do
    if record then
      fields[#fields + 1] = list[i]
      fields[#fields + 1] = string.match(record, '^#(%d+)')
      local owner = named_owner(list[i])
      gone[#gone + 1] = owner and owner .. '{' .. fields[#fields]
    end
  end
  if #fields > 0 then
    redis.call('HDEL', permits, unpack(fields))
  end
  if #gone > 0 then
    redis.call('ZREM', owners, unpack(gone))
  end
  return redis.call('ZREM', timeouts, unpack(list))
end

-- leave_more: n permits more are left. Redisson's clients are told of their number; a user without the right to that
-- channel releases permits all the same.
local function leave_more(publish, channel, lock, n)
  local left = redis.call('GET', lock) + n
  redis.call('SET', lock, left, 'KEEPTTL')
  if left > 0 then -- Redisson's clients do not bear another number
    redis.pcall(publish, 'redisson_sc' .. string.sub(channel, 23), left) -- behind redisson_lock__channel
  end
end

-- in_form is 2 if a client of Redisson's may have a permit, or give permits to the string: it tells of that on its own
-- channel.
local function in_form(timeouts, permits, ours)
  local known = redis.call('HLEN', permits)
  return (not ours or known ~= 2 * redis.call('ZCARD', timeouts) + 1) and 2 or nil
end
