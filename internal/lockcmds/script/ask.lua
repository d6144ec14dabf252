-- ask.lua: nothing. Redis answers whether the client may run scripts.
--
-- Returns  {now}  it may; now is that of lib/now.lua

return {now()}
