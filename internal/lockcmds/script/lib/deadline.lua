-- deadline: the time (epoch ms) until which a place in a fair queue of that many places is kept for a waiter that gives a sign of life now.
--
-- Redisson takes its wait off every deadline once for each of its waiters that leaves the queue, and only those ahead
-- of a place can leave before it does. So a place gets one wait of its own and one for each place in the queue, and no
-- deadline depends on another.

local function deadline(places, now, wait)
  return string.format('%.0f', now + wait * (places + 1))
end
