-- drop_permit: a permit is over, or its lease is cut to grace ms. It is named by its fence, or for fence 0 by its
-- acquire. A session that has extended the permit of another one, and acquired none of it (less 0), takes nothing with it.
-- ended is as in drop.lua.
-- Returns the script's answer.

local function drop_permit(publish, channel, queue, lock, owner, field, fence, acquire, grace, request, less, ended)
  local timeouts, permits = permits_of(lock)
  local now = milliseconds(redis.call('TIME'))
  if fence == '0' then
    fence = string.match(redis.call('HGET', permits, permit_of(owner, field, acquire)) or '', '^#(%d+)')
  end
  local permit, score, requests = permit_with(timeouts, permits, owner, fence or '', now)
  if not permit then
    return {0}
  elseif number_in(requests, field) > tonumber(request) then
    return {2}
  elseif field ~= '' and less == '0' then
    redis.call('HSET', permits, permit, '#' .. fence .. ' ' .. requests_with(requests, field))
    return {2}
  elseif ended == '1' and elsewhere(field, (string.gsub('{' .. requests, ' ', '{'))) then
    redis.call('HSET', permits, permit, '#' .. fence .. ' ' .. requests_with(requests, field, request))
    return {2}
  elseif grace == '0' then
    end_permits(publish, channel, queue, lock, {permit}, now)
    return {1}
  end
  redis.call('HSET', permits, permit, '#' .. fence .. ' ' .. requests_with(requests, field, request))
  if score > now + grace then
    redis.call('ZADD', timeouts, now + grace, permit)
    keep(lock, is_ours(lock, permits))
    wake(publish, channel, queue, lock)
  end
  return {1}
end
