-- force.lua: free a lock of any holder, wake plain waiters and the fair head, and tell of the loss.
--
-- The holder may have any name, and be at any proxy, so all proxies are told. A user without the right to a channel
-- frees the lock all the same.
--
-- KEYS[1]  lock     hash, see lib/hash.lua; exists only while held
-- KEYS[2]  channel  base channel of the lock; a fair waiter listens on channel:place
-- KEYS[3]  queue    list of places of waiters, first to ask at the head
-- ARGV[1]  publish  PUBLISH, or SPUBLISH in a cluster
-- ARGV[2]  fence    of the grant that is meant; 0: one without a fence; -1: any
-- ARGV[3]  lost     channel on which losses of the lock are told; empty: an end by the handle is none
-- ARGV[4]  forced   channel on which proxies are told of grants that were ended by force, or by their handle
--
-- Returns  {owner, fence}  whose grant was ended; the owner is text; fence 0: it was taken without one
--          {}              it was free, or held by another grant

local held = holder(KEYS[1])
if #held == 0 then
  return held
end
if ARGV[2] ~= '-1' and held[3] ~= tonumber(ARGV[2]) then
  return {}
end
free(ARGV[1], KEYS[2], KEYS[3], KEYS[1])
if held[3] > 0 then
  local fence = string.format('%.0f', held[3])
  if ARGV[3] == '' then
    fence = '-' .. fence .. ' ' .. redis.sha1hex(held[1] .. ' ' .. fence) -- a proof: see Forced.Message
  else
    redis.pcall('PUBLISH', ARGV[3], fence .. ' forced')
  end
  redis.pcall('PUBLISH', ARGV[4], fence .. ' ' .. KEYS[1])
end
return {held[1], held[3]}
