-- shared: the holds of owners that hold a lock shared, in the layout of Redisson's read lock. See lib/hash.lua.
--
-- The lease of each holder is a key of its own, {lock}:name:rwlock_timeout:1. The hash lasts as long as the longest of
-- them, or longer if the holder of that one has left a crowd. A holder whose key has ended does not count; its fields
-- stay until a script meets them.
--
-- No field but the counts is a number: a release of Redisson's counts each field that is one down to one.

-- A holder stands in the hash under its name, which differs from the owner in some cases, so that no two of all
-- locks and owners have one key for their leases: the names of the locks "{t}" and "{t}:job" begin alike. Redisson's
-- own names, and those that proxies give out, stay as they are; in others each colon and "%" is written as "%3A" and
-- "%25". So what stands behind the last colon of a key, or behind one before it if that is a number, is the name,
-- and the rest is the lock. A name that is a number begins with "%". By Redisson's rule the locks "a" and "{a}"
-- begin alike to the end, so for "{a}" a name ends in "{}".

local function name_of(lock, owner)
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
local function timeout_of(lock, name, nth)
  return (string.find(lock, '{', 1, true) and lock or '{' .. lock .. '}') .. ':' .. name .. ':rwlock_timeout:' .. (nth or 1)
end

-- lease_of is the rest of a shared holder's lease in ms; 0: it has ended. A holder of Redisson's has a key for each
-- of its holds, ours has one. A count that was written by hand is not counted to its end. A lease whose end a client
-- has removed gets one again.
local function lease_of(lock, name, holds)
  local left = 0
  for n = 1, math.min(holds, 64) do
    local timeout = timeout_of(lock, name, n)
    local rest = redis.call('PTTL', timeout)
    if rest == -1 then
      rest = 30000
      redis.call('PEXPIRE', timeout, rest)
    end
    left = math.max(left, rest)
  end
  return left
end

local function begin_lease(lock, name, lease)
  redis.call('SET', timeout_of(lock, name), '1', 'PX', lease)
end

-- forget removes what the hash has of a holder.
local function forget(lock, name)
  local fence = string.match(redis.call('HGET', lock, '{' .. name .. '}') or '', '^#(%d+)')
  redis.call('HDEL', lock, name, '{' .. name .. '}', fence and '{}' .. fence or name)
end

-- end_lease ends the hold of an owner, and returns the rest of its lease.
local function end_lease(lock, owner)
  local name = name_of(lock, owner)
  local timeout = timeout_of(lock, name)
  local left = redis.call('PTTL', timeout)
  redis.call('DEL', timeout)
  forget(lock, name)
  return left
end

-- shared_hold returns {holds, fence, what {by} would be, mode} of an owner in a hash of mode read, as hold_of does;
-- or Redis's error. The fifth one is true if a client of Redisson holds it by that name: nothing of ours may be
-- written there.
local function shared_hold(lock, owner)
  local name = name_of(lock, owner)
  local held = redis.pcall('HMGET', lock, name, '{' .. name .. '}', 'mode')
  local wrong = held.err and held or not held[2] and no_lock(lock, held[3])
  if wrong then
    return wrong
  end
  local fence, by = string.match(held[2] or '', '^#(%d+) ?(.*)$')
  if held[1] and fence and redis.call('EXISTS', timeout_of(lock, name)) == 1 then
    return {held[1], fence, by, held[3]}
  end
  return {false, false, false, held[3], held[1] and not fence}
end

-- put_shared writes how often the owner holds the lock, and what {by} would be, for a named owner; '': it is not.
local function put_shared(lock, owner, fence, holds, by)
  local name, record = name_of(lock, owner), '#' .. fence .. (by == '' and '' or ' ' .. by)
  redis.call('HSET', lock, 'mode', 'read', name, holds, '{' .. name .. '}', record, '{}' .. fence, '#' .. name)
end

-- lengthen_shared: the owner's lease, and that of the hash, are this long at least.
local function lengthen_shared(lock, owner, lease)
  lengthen(lock, lease)
  lengthen(timeout_of(lock, name_of(lock, owner)), lease)
end

-- share writes a first shared hold with a new fence. It returns what grant does.
local function share(lock, counter, owner, lease, time, mode, by)
  --@ fence
  local name = name_of(lock, owner)
  begin_lease(lock, name, lease)
  forget(lock, name) -- an earlier grant, whose lease has ended
  put_shared(lock, owner, text, 1, by)
  if mode ~= 'read' then
    --@ expire
  else
    lengthen(lock, lease)
  end
  return fence, replaced
end
