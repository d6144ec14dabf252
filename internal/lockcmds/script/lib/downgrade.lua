-- downgrade: the exclusive hold of an owner is over, and it goes on to hold the lock shared. The lock is free for no moment.
--
-- shared is the field {shared}; see lib/hash.lua. The call has written its request.

local function downgrade(publish, channel, queue, lock, owner, shared)
  local fence, holds = string.match(shared, '^#(%d+) (%d+)$')
  local fields, requests = redis.call('HGETALL', lock), ''
  -- First: while the hash slot is being moved, Redis may end the script here.
  local name = name_of(lock, owner)
  begin_lease(lock, name, math.max(redis.call('PTTL', lock), 1))
  for i = 1, #fields, 2 do
    local session = string.match(fields[i], '^{(.+)}$')
    if session == 'request' then
      requests = fields[i + 1]
    elseif session and session ~= 'shared' and session ~= 'note' then
      requests = requests_with(requests, fields[i], fields[i + 1])
    end
    if session then
      redis.call('HDEL', lock, fields[i])
    end
  end
  redis.call('HDEL', lock, 'fence', owner)
  fence = fence or '0'
  redis.call('HSET', lock, 'mode', 'read', name, holds or 1, '{' .. name .. '}', '#' .. fence .. ' ' .. requests, '{}' .. fence, '#' .. name)
  tell_rwlock(publish, channel)
  wake(publish, channel, queue, lock)
end
