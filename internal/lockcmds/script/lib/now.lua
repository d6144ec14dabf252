-- now: Redis's time in microseconds, as grants take it for fences; 0: the user may not ask for it.

local function now()
  local time = redis.pcall('TIME')
  return time.err and 0 or time[1] * 1000000 + time[2]
end
