-- grant: write an exclusive hold into the lock with a new fence.
--
-- lease is in ms; time is what TIME returned. request is the number of the call; or if field is not empty, what {by} is
-- then. holds are the owner's then; absent: it is a first hold.
--
-- Returns the fence, and 1 if the counter was replaced, else nil.

local function grant(lock, counter, owner, lease, time, request, field, holds)
  --@ fence
  redis.call('HSET', lock, owner, holds or '1', 'fence', text, field == '' and '{request}' or '{by}', request, 'mode', 'lock')
  --@ expire
  return fence, replaced
end
