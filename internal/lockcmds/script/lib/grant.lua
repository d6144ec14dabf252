-- grant: write an exclusive hold into the lock with a new fence.
--
-- lease is in ms; time is what TIME returned. by is what {by} is then, for a named owner; '': it is not. holds are the
-- owner's then; absent: it is a first hold.
--
-- Returns the fence, and 1 if the counter was replaced, else nil.

local function grant(lock, counter, owner, lease, time, by, holds)
  --@ fence
  redis.call('HSET', lock, owner, holds or '1', 'fence', text, 'mode', 'lock')
  if by ~= '' then
    redis.call('HSET', lock, '{by}', by)
  end
  --@ expire
  return fence, replaced
end
