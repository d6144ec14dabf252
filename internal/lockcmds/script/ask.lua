-- ask.lua: nothing. Redis answers whether the client may run scripts.
--
-- Returns  {1}  it may

return {1}
