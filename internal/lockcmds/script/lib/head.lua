-- head_of: the first place in a fair queue that may wait for this lock; nil: there is none.
--
-- Redisson's rule gives the locks "a" and "{a}" one queue. Places of waiters for "{a}" at a proxy end in "{}".
-- A place without that mark waits for "a", or is Redisson's and may wait for either: for "{a}" it is passed over while "a"
-- is held. O(1), unless both locks have waiters.
--
-- A key of another type counts as an empty queue: it must not keep a lock from being released.

local no_queue = nil

local function waits_for(place, lock)
  return (string.sub(place, -2) == '{}') == (string.find(lock, '^{[^{]+}$') ~= nil)
end

local function head_of(queue, lock)
  local head = redis.pcall('LINDEX', queue, '0') -- Redis prints a number as a float, a text as it is
  if type(head) ~= 'string' then
    no_queue = head and 2 or nil
    return nil
  end
  if waits_for(head, lock) then
    return head
  end
  local other = string.match(lock, '^{([^{]+)}$')
  if other and redis.pcall('EXISTS', other) ~= 1 then
    return head
  end
  local from, places = 1, nil
  repeat
    places = redis.call('LRANGE', queue, from, from + 99)
    for _, place in ipairs(places) do
      if waits_for(place, lock) then
        return place
      end
    end
    from = from + 100
  until #places < 100
  return nil
end
