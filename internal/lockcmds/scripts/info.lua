-- info.lua: who holds a lock. The one script that does not return integers only: an owner is text.
--
-- KEYS[1]  lock   hash {owner: holds, fence: n}; exists only while held
-- KEYS[2]  queue  list of waiting owners, first to ask at the head
--
-- Returns  {owner, holds, pttl_ms, fence, fair_waiters}  held; fence 0: it was taken without one
--          {}                                            free

local fields = redis.pcall('HGETALL', KEYS[1])
if fields.err then
  return fields
end
local owner, holds, fence = nil, 0, 0
for i = 1, #fields, 2 do
  if fields[i] == 'fence' then
    fence = tonumber(fields[i + 1])
  elseif fields[i] ~= 'mode' and not owner then
    owner, holds = fields[i], tonumber(fields[i + 1])
  end
end
if not owner then
  return {}
end
return {owner, holds, redis.call('PTTL', KEYS[1]), fence, redis.call('LLEN', KEYS[2])}
