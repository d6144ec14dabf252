-- head_of: the first in a fair queue that may wait for this lock; nil: nobody does.
--
-- Redisson's rule gives the locks "a" and "{a}" one queue. Places of those who wait for "{a}" through a proxy end in
-- "{}". One without that mark waits for "a", or is Redisson's and may wait for either: for "{a}" it is passed over while
-- "a" is held. O(1), unless both locks are waited for.
--
-- A key of another type is no queue: whoever wrote it must not keep a lock from being released.

local no_queue = nil

local function head_of(queue, lock)
  local head = redis.pcall('LINDEX', queue, 0)
  if type(head) ~= 'string' then
    no_queue = head and 2 or nil
    return nil
  end
  local other = string.match(lock, '^{([^{]+)}$')
  local function waits(place)
    return (string.sub(place, -2) == '{}') == (other ~= nil)
  end
  if waits(head) or other and redis.pcall('EXISTS', other) ~= 1 then
    return head
  end
  local from, places = 1, nil
  repeat
    places = redis.call('LRANGE', queue, from, from + 99)
    for _, place in ipairs(places) do
      if waits(place) then
        return place
      end
    end
    from = from + 100
  until #places < 100
  return nil
end
