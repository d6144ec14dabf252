-- take_turn: the head of the fair queue takes its turn: it leaves the queue, and the deadlines behind it move up by wait.
--
-- A newcomer's deadline is the last one's plus its wait, so the head's wait was part of every deadline behind it. A waiter
-- that came long after the head could be overdue without it and yet be alive: nobody is moved to less than eight seconds
-- from now (epoch ms) by this. O(queue length).

local function take_turn(queue, deadlines, head, wait, now)
  redis.call('LPOP', queue)
  redis.call('ZREM', deadlines, head)
  local others = redis.call('ZRANGE', deadlines, 0, -1, 'WITHSCORES')
  local soon = now + 8000
  for first = 1, #others, 1000 do
    local last = math.min(first + 999, #others)
    for i = first, last, 2 do
      local score = others[i + 1] - wait
      if score < soon then
        score = math.max(score, math.min(others[i + 1], soon))
      end
      others[i], others[i + 1] = score, others[i]
    end
    redis.call('ZADD', deadlines, unpack(others, first, last))
  end
end
