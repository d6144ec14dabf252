-- permits: a lock that at most n hold at the same time, in the layout of Redisson's permit semaphore.
--
--   lock      string: how many permits are left, as Redisson's clients see it
--   timeouts  zset: permit -> epoch ms at which its lease ends. One of Redisson's is bytes of its own
--   permits   hash of ours: permit -> "#fence", or "#fence*" if another session than its own has extended it; fence ->
--             permit, or "permit{#note"; made -> 1 if the string is ours
--   owners    zset without scores: "owner{fence" of each permit of an owner that was named by OWNER, in that order
--
-- A permit of ours is "owner#acquire": by the name of its acquire there is no other like it. It is held up to the
-- millisecond in which its lease ends, as a key is there, and while the string is. A string of ours ends with the
-- longest lease, and is deleted with the last permit. Redisson's has no TTL, and stays. A permit is found by its name
-- or its fence, never by reading all.

-- permits_of is the keys timeouts, permits and owners of a lock. By Redisson's rule the locks "a" and "{a}" share the
-- first one.
local function permits_of()
  local base = string.find(lock, '{', 1, true) and lock or '{' .. lock .. '}'
  local own = string.find(lock, '^{[^{]+}$') and '{}' or ''
  return base .. ':timeout', base .. ':permits' .. own, base .. ':owners' .. own
end

-- left_of is how many permits are left, as a text; false: the key is missing; or Redis's error: it is something else.
-- Redisson's number has 32 bits.
local function left_of()
  local left = redis.pcall('GET', lock)
  if type(left) == 'string' and not (#left <= 11 and string.find(left, '^-?%d+$')) then
    return redis.pcall('HLEN', lock) -- WRONGTYPE
  end
  return left
end

-- rest_until is the rest of a lease in ms; -1: it does not end in our days.
local function rest_until(score, now)
  local rest = tonumber(score) - now
  return rest < 1e12 and math.max(rest, 0) or -1
end

local function held_permits(now)
  return redis.call('ZCOUNT', timeouts, now, '+inf')
end

-- first_end is the rest of the lease that ends first, in ms. If Redis was stopped for longer than the lease of a permit
-- that it has just granted, that has ended already.
local function first_end(now)
  return rest_until(redis.call('ZRANGE', timeouts, '0', '0', 'WITHSCORES')[2] or now, now)
end

-- is_ours reports whether lockproxy has made the string. One with that mark and no TTL was made anew by Redisson.
local function is_ours()
  return redis.pcall('HGET', permits, 'made') == '1' and redis.call('PTTL', lock) >= 0
end

-- keep: the keys last as long as the longest lease, and end in the same millisecond: the string alone would count as
-- another program's. If the string is not ours, the zset lasts as long as the string. left is how many permits are
-- left, if the string is to be written.
local function keep(ours, left)
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

-- held_permit is a permit while it is held: its name, its fence, the end of its lease, and whether it is its session's
-- alone; nil: it is not held.
local function held_permit(permit, now)
  local fence, others = string.match(redis.call('HGET', permits, permit) or '', '^#(%d+)(.*)$')
  local ends = fence and redis.call('ZSCORE', timeouts, permit)
  if ends and tonumber(ends) >= now then
    return permit, fence, tonumber(ends), others == ''
  end
end

-- owner_of_permit is nil for a permit of Redisson's, and for what is no permit.
local function owner_of_permit(permit)
  return string.match(permit, '^(.*)#')
end

-- permit_with is held_permit of the one with a fence.
local function permit_with(fence, now)
  local permit = redis.pcall('HGET', permits, fence)
  permit = type(permit) == 'string' and string.match(permit, '^[^{]*')
  if permit and owner_of_permit(permit) then
    return held_permit(permit, now)
  end
end

-- remove_permits returns how many of the permits there were. Some may be Redisson's.
local function remove_permits(list)
  local fields, gone = {}, {}
  for i, record in ipairs(redis.call('HMGET', permits, unpack(list))) do
    local fence = record and string.match(record, '^#(%d+)')
    if fence then
      fields[#fields + 1], fields[#fields + 2] = list[i], fence
      gone[#gone + 1] = owner_of_permit(list[i]) .. '{' .. fence
    end
  end
  if #fields > 0 then
    redis.call('HDEL', permits, unpack(fields))
    redis.call('ZREM', owners, unpack(gone))
  end
  return redis.call('ZREM', timeouts, unpack(list))
end

-- leave_more: n permits more are left. Redisson's clients are told of their number; a user without the right to that
-- channel releases permits all the same.
local function leave_more(n)
  local left = redis.call('GET', lock) + n
  redis.call('SET', lock, left, 'KEEPTTL')
  if left > 0 then -- Redisson's clients do not bear another number
    redis.pcall(publish, 'redisson_sc' .. string.sub(channel, 23), left) -- behind redisson_lock__channel
  end
end

-- take_permit takes a permit, with a new fence. live is how many permits others have, left how many are left, as a
-- text; false: the string is missing. Returns the fence, 1 if the counter was replaced, else nil, and how many are
-- left.
local function take_permit(time, permit, named, lease, limit, live, left, ours)
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
    --@
    sweep_permits(time[2])
  end
  return fence, replaced, kept
end

-- sweep_permits forgets some of our permits that Redisson's clients have removed, because their leases had ended. It
-- looks at a few dozen, from a place at random on.
local function sweep_permits(random)
  if redis.call('HLEN', permits) <= 2 * redis.call('ZCARD', timeouts) + 1 then
    return
  end
  local fields, gone = redis.call('HSCAN', permits, random, 'COUNT', 96)[2], {}
  for i = 1, #fields, 2 do
    if string.find(fields[i + 1], '^#%d') and #gone < 1000 and not redis.call('ZSCORE', timeouts, fields[i]) then
      gone[#gone + 1] = fields[i]
    end
  end
  if #gone > 0 then
    remove_permits(gone)
  end
end

-- end_permits: these permits, which are held, are over. With the last one of all a lock of ours is free. If the user
-- may not publish, they stay, and the error says so. Returns whether the lock is free, and others wait.
local function end_permits(list, now)
  local ours = is_ours()
  if ours and #list == held_permits(now) then
    --@
    free()
    redis.call('DEL', timeouts, permits, owners)
    return head_of() ~= nil
  end
  --@
  wake()
  local n = 0
  for from = 1, #list, 1000 do
    n = n + remove_permits({unpack(list, from, math.min(from + 999, #list))})
  end
  leave_more(n)
  if ours then
    keep(ours)
  end
  return false
end
