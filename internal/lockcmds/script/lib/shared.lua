-- shared: the holds of owners that hold a lock shared, in the layout of Redisson's read lock. See lib/hash.lua.
--
-- The lease of each holder is a key of its own, {lock}:owner:rwlock_timeout:1. The hash lasts as long as the longest of
-- them. A holder whose key has ended does not count; its field stays until a script meets it.
--
-- No field but the counts is a number: a release of Redisson's counts each field that is one down to one.

local function timeout_of(lock, owner)
  return (string.find(lock, '{', 1, true) and lock or '{' .. lock .. '}') .. ':' .. owner .. ':rwlock_timeout:'
end

-- shares_key reports whether the owner holds the twin of the lock shared, too.
local function shares_key(lock, owner)
  --@ twin
  return twin and redis.pcall('HEXISTS', twin, '{' .. owner .. '}') == 1
end

-- lease_of is the rest of a shared holder's lease in ms; 0: it has ended. A holder of Redisson's has a key for each of its
-- holds, ours has one. A count that was written by hand is not counted to its end.
local function lease_of(lock, owner, holds)
  local left, timeout = 0, timeout_of(lock, owner)
  for n = 1, math.min(holds, 64) do
    left = math.max(left, redis.call('PTTL', timeout .. n))
  end
  return left
end

local function begin_lease(lock, owner, lease)
  local timeout = timeout_of(lock, owner) .. '1'
  if shares_key(lock, owner) then
    lease = math.max(lease, redis.call('PTTL', timeout))
  end
  redis.call('SET', timeout, '1', 'PX', lease)
end

-- end_lease returns the rest of the lease.
local function end_lease(lock, owner)
  local timeout = timeout_of(lock, owner) .. '1'
  local left = redis.call('PTTL', timeout)
  if not shares_key(lock, owner) then
    redis.call('DEL', timeout)
  end
  return left
end

--@ requests
-- shared_hold returns {holds, fence, the session's last request, mode, the last requests of all sessions}, each false if
-- it is missing; or Redis's error. If the lock is held exclusively, by this owner too, the last one is how often. If a
-- client of Redisson holds it shared by that name, it is true: nothing of ours may be written there.
local function shared_hold(lock, owner, field)
  local held = redis.pcall('HMGET', lock, owner, '{' .. owner .. '}', 'mode', '{shared}', field == '' and '{request}' or field)
  if held.err then
    return held
  end
  local mode = held[3]
  local wrong = mode ~= 'lock' and not held[2] and no_lock(lock, mode)
  if wrong then
    return wrong
  end
  if mode == 'lock' then
    local fence, holds = string.match(held[4] or '', '^#(%d+) (%d+)$')
    return {held[1] and holds or false, fence or false, held[5], mode, held[1]}
  end
  local fence, requests = string.match(held[2] or '', '^#(%d+) (.*)$')
  if mode == 'read' and held[1] and fence and redis.call('EXISTS', timeout_of(lock, owner) .. '1') == 1 then
    return {held[1], fence, last_of(requests, field), mode, requests}
  end
  return {false, false, false, mode, mode == 'read' and held[1] and not fence}
end

-- put_shared writes how often the owner holds the lock, and the session's last request; nil: the session has gone.
local function put_shared(lock, owner, held, holds, field, request)
  if held[4] ~= 'lock' then
    local record = '#' .. held[2] .. ' ' .. requests_with(held[5], field, request)
    redis.call('HSET', lock, 'mode', 'read', owner, holds, '{' .. owner .. '}', record)
    return
  end
  redis.call('HSET', lock, '{shared}', '#' .. held[2] .. ' ' .. holds)
  if request then
    redis.call('HSET', lock, field == '' and '{request}' or field, request)
  end
end

-- lengthen_shared: the owner's lease, and that of the hash, are this long at least.
local function lengthen_shared(lock, owner, mode, lease)
  lengthen(lock, lease)
  if mode == 'read' then
    lengthen(timeout_of(lock, owner) .. '1', lease)
  end
end

-- share writes a shared hold with a new fence. held is what shared_hold has returned. It returns what grant does.
local function share(lock, counter, owner, lease, time, held, field, request, holds)
  --@ fence
  held[2] = text
  if held[4] == 'lock' then
    put_shared(lock, owner, held, holds, field, request)
    lengthen(lock, lease)
    return fence, replaced
  end
  begin_lease(lock, owner, lease)
  held[5] = ''
  put_shared(lock, owner, held, holds, field, request)
  if held[4] ~= 'read' then
    --@ expire
  else
    lengthen(lock, lease)
  end
  return fence, replaced
end
