-- downgrade: the exclusive hold of an owner is over, and it goes on to hold the lock shared. The lock is free for no moment.
--
-- shared is the field {shared}; see lib/hash.lua. The call has written its request.

local function downgrade(publish, channel, queue, lock, owner, shared)
  local fence, holds = string.match(shared, '^#(%d+) (%d+)$')
  local lease, fields, requests = math.max(redis.call('PTTL', lock), 1), redis.call('HGETALL', lock), ''
  for i = 1, #fields, 2 do
    local session = string.match(fields[i], '^{(.+)}$')
    if session == 'request' then
      requests = fields[i + 1]
    elseif session and session ~= 'shared' then
      requests = requests_with(requests, fields[i], fields[i + 1])
    end
  end
  redis.call('DEL', lock)
  redis.call('HSET', lock, 'mode', 'read', owner, holds or 1, '{' .. owner .. '}', '#' .. (fence or 0) .. ' ' .. requests)
  redis.call('PEXPIRE', lock, lease)
  begin_lease(lock, owner, lease)
  tell_rwlock(publish, channel)
  wake(publish, channel, queue, lock)
end
