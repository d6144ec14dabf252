-- hash: the fields of a lock's hash, and the writer of each.
--
--   owner      how often the owner holds the lock; Redisson reads and writes this field alone
--   fence      of the grant
--   mode       lock: Redisson's read and write locks wait for a hash whose mode is not theirs. Without it they are granted beside
--              the holder, and their release counts every field that is a number down to one: a fence hangs Redis
--   {request}  the last request that the owner's only session has made of the hold
--   {ours}     the sum of the fields of sessions, for an owner that was named by OWNER
--   {session}  "holds request taken", one for each session of such an owner: the session alone writes its holds, as the number
--              that it then has; other sessions count in taken what they have released of them
--
-- The names with braces are no owner's: OWNER refuses braces. A hash without them was written by Redisson, or by a proxy
-- of an earlier version: what the owner's field says beyond {ours} is held by no known session.
--
-- Each call of a session has a number that is larger than those of its earlier calls. A number that was applied already, or
-- is older, changes no count: the call is a copy, sent again because its answer was lost, or overtaken by its own repetition.

local function field_of(text)
  local holds, request, taken = string.match(text or '', '^(%d+) (%d+) (%d+)$')
  return tonumber(holds or 0), tonumber(request or 0), tonumber(taken or 0)
end

local function lengthen(lock, lease)
  if redis.call('PTTL', lock) < tonumber(lease) then
    redis.call('PEXPIRE', lock, lease)
  end
end
