-- shared: the holds of owners that hold a lock shared, in the layout of Redisson's read lock. See lib/lock.lua.
--
-- The lease of each holder is a key of its own, {lock}:name:rwlock_timeout:1. The hash lasts as long as the longest of
-- them, or longer if the holder of that one has left a crowd. A holder whose key has ended does not count; its fields
-- stay until a script meets them.
--
-- No field but the counts is a number: a release of Redisson's counts each field that is one down to one.

-- name_of is the name under which a holder stands in the hash. It differs from the owner in some cases, so that no two
-- of all locks and owners have one key for their leases: the names of the locks "{t}" and "{t}:job" begin alike.
-- Redisson's own names, and those that proxies give out, stay as they are; in others each colon and "%" is written as
-- "%3A" and "%25". So what stands behind the last colon of a key, or behind one before it if that is a number, is the
-- name, and the rest is the lock. A name that is a number begins with "%". By Redisson's rule the locks "a" and "{a}"
-- begin alike to the end, so for "{a}" a name ends in "{}".
local function name_of(owner)
  if string.find(lock, '^{[^{]+}$') then
    return owner .. '{}'
  elseif string.find(owner, '^%-?%d+$') then
    return string.format('%%%02X', string.byte(owner)) .. string.sub(owner, 2)
  elseif not string.find(owner, '[%%:]') or string.sub(owner, 37, 37) == ':' and
    (string.find(owner, '^[%x-]+:%-?%d+$') or string.find(owner, '^[%x-]+:%w+:%d+$')) then
    return owner
  end
  return (string.gsub(string.gsub(owner, '%%', '%%25'), ':', '%%3A'))
end

-- owner_of is the owner with a name.
local function owner_of(name)
  if string.sub(name, -2) == '{}' then
    return string.sub(name, 1, -3)
  end
  return (string.gsub(name, '%%(%x%x)', function(code) return string.char(tonumber(code, 16)) end))
end

-- timeout_of is the key of the lease of a holder.
local function timeout_of(name, nth)
  local base = string.find(lock, '{', 1, true) and lock or '{' .. lock .. '}'
  return base .. ':' .. name .. ':rwlock_timeout:' .. (nth or 1)
end

-- lease_of is the rest of a shared holder's lease in ms; 0: it has ended. A holder of Redisson's has a key for each
-- of its holds, ours has one. A count that was written by hand is not counted to its end. A lease whose end a client
-- has removed gets one again.
local function lease_of(name, holds)
  local left = 0
  for n = 1, math.min(holds, 64) do
    local timeout = timeout_of(name, n)
    local rest = redis.call('PTTL', timeout)
    if rest == -1 then
      rest = 30000
      redis.call('PEXPIRE', timeout, rest)
    end
    left = math.max(left, rest)
  end
  return left
end

-- forget removes what the hash has of a holder.
local function forget(name)
  local fence = string.match(redis.call('HGET', lock, '{' .. name .. '}') or '', '^#(%d+)')
  redis.call('HDEL', lock, name, '{' .. name .. '}', fence and '{}' .. fence or name)
end

-- end_hold ends the hold of an owner.
local function end_hold(owner)
  local name = name_of(owner)
  redis.call('DEL', timeout_of(name))
  forget(name)
end

-- shared_hold is hold_of in a hash of mode read: {holds, fence, what {by} would be, mode}. The fifth one is true if a
-- client of Redisson holds it by that name: nothing of ours may be written there.
local function shared_hold(owner)
  local name = name_of(owner)
  local held = redis.pcall('HMGET', lock, name, '{' .. name .. '}', 'mode')
  local wrong = held.err and held or not held[2] and no_lock(held[3])
  if wrong then
    return wrong
  end
  local fence, by = string.match(held[2] or '', '^#(%d+) ?(.*)$')
  if held[1] and fence and redis.call('EXISTS', timeout_of(name)) == 1 then
    return {held[1], fence, by, held[3]}
  end
  return {false, false, false, held[3], held[1] and not fence}
end

-- put_shared writes how often the owner holds the lock, and what {by} would be, for a named owner; '': it is not.
local function put_shared(owner, fence, holds, by)
  local name, record = name_of(owner), '#' .. fence .. (by == '' and '' or ' ' .. by)
  redis.call('HSET', lock, 'mode', 'read', name, holds, '{' .. name .. '}', record, '{}' .. fence, '#' .. name)
end

-- lengthen_shared: the owner's lease, and that of the hash, are this long at least; '0': they stay.
local function lengthen_shared(owner, lease)
  lengthen(lock, lease)
  lengthen(timeout_of(name_of(owner)), lease)
end

-- share writes a first shared hold with a new fence. It returns what grant does.
local function share(owner, lease, time, mode, by)
  --@ fence
  local name = name_of(owner)
  redis.call('SET', timeout_of(name), '1', 'PX', lease)
  forget(name) -- an earlier grant, whose lease has ended
  put_shared(owner, text, 1, by)
  if mode ~= 'read' then
    --@ expire
  else
    lengthen(lock, lease)
  end
  return fence, replaced
end

-- longest is the rest of the longest lease among the shared holders in fields, names and values in turn; 0: none is
-- alive. except is the name of a holder that does not count. Holders whose lease has ended are removed, unless keep is
-- true.
local function longest(fields, except, keep)
  local most = 0
  for i = 1, #fields, 2 do
    local name, holds = fields[i], tonumber(fields[i + 1])
    if holds and name ~= except then
      local left = lease_of(name, holds)
      if left == 0 and not keep then
        forget(name)
      end
      most = math.max(most, left)
    end
  end
  return most
end

-- longest_seen is longest of all holders; of a crowd it looks at a few, until one is alive, eight times at most. The
-- second result is whether it has seen all.
local function longest_seen(except, keep)
  if redis.call('HLEN', lock) <= 200 then
    return longest(redis.call('HGETALL', lock), except, keep), true
  end
  local cursor, most = 0, 0
  for _ = 1, 8 do
    local page = redis.call('HSCAN', lock, cursor, 'COUNT', 48)
    cursor, most = page[1], longest(page[2], except)
    if most > 0 or cursor == '0' then
      return most, most == 0
    end
  end
  return 0, false
end

-- sweep looks at two dozen holders, from a place at random on, and removes those whose lease has ended. While there are
-- such holders it looks at more, eight times at most: so calls that each add a holder cannot outrun it.
local function sweep(random)
  local cursor = random
  for _ = 1, 8 do
    local page = redis.call('HSCAN', lock, cursor, 'COUNT', 48)
    local fields, leases = page[2], {}
    for i = 1, math.min(#fields, 512), 2 do -- a page has more if Redis packs large hashes
      if tonumber(fields[i + 1]) then
        leases[#leases + 1] = timeout_of(fields[i])
      end
    end
    if redis.call('EXISTS', lock, unpack(leases)) > #leases then
      return
    end
    longest(fields)
    cursor = page[1]
  end
end

-- rest_of is the rest of the lease of a lock that is held shared, as a waiter is to know it: that of the longest lease
-- of its holders. A lock whose holders have all ended is free: it is removed, and the answer is -2. In a crowd it is
-- that of some holders, so the waiter asks again when these have ended.
local function rest_of(pttl)
  local most, all = longest_seen(nil, true)
  if most == 0 and all and not no_lock('read') then
    redis.call('DEL', lock)
    return -2
  end
  return most > 0 and most or all and pttl or math.min(pttl, 100)
end

-- settle_shared: shared holds are over, or that of leaver is, or it lasts for rest ms from now on. If they were the
-- last ones, the lock is free. If the others' leases are shorter, it ends earlier.
--
-- left is the rest of the longest of their leases, in ms, as it was. Of a crowd only a few are looked at: then the lock
-- may last as long as the lease that is over. A waiter that asks looks again (see rest_of). A script sets both ends one
-- after the other, so that of the lock may be some ms later.
--
-- It reads the others' leases before it writes: while the hash slot is being moved, one of them may end the script.
local function settle_shared(left, leaver, rest)
  local name = leaver and name_of(leaver)
  local most, all = nil, false
  if redis.call('HLEN', lock) > (leaver and 16 or 12) then
    local some = longest(redis.call('HSCAN', lock, 0, 'COUNT', 16)[2], name)
    if some > 0 and (left + 10 < redis.call('PTTL', lock) or left <= 2 * some) then
      most = some
    end
  end
  if not most then
    most, all = longest_seen(name)
  end
  if rest then
    most = math.max(most, tonumber(rest))
    redis.call('PEXPIRE', timeout_of(name), rest)
  elseif leaver then
    end_hold(leaver)
  end
  local pttl = redis.call('PTTL', lock)
  if all and most == 0 then
    --@
    free()
  elseif all and pttl > most then
    --@
    redis.call('PEXPIRE', lock, most) -- as Redisson does: the others' leases are shorter
    wake()
  elseif pttl < most then
    redis.call('PEXPIRE', lock, most)
  end
end

-- leave_shared: the shared hold of an owner is over.
local function leave_shared(owner)
  settle_shared(redis.call('PTTL', timeout_of(name_of(owner))), owner)
end

-- set_lease: the lease of an owner that holds the lock shared is this long from now on. If it was the longest, the lock
-- may end earlier, and waiters are told.
local function set_lease(owner, lease)
  local left = redis.call('PTTL', timeout_of(name_of(owner)))
  if left > tonumber(lease) then
    settle_shared(left, owner, lease)
  else
    lengthen_shared(owner, lease)
  end
end
