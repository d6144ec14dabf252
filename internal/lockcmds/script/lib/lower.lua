-- lower: a session releases one hold, and writes how many it has then.
--
-- While holds are left the lock stays, for lease ms at least; '0': its TTL stays. fence is the grant's; '0': any.
-- A session of a named owner that has no hold itself releases one of another session: from is the field to look at first;
-- empty: any. Its own field remembers that, so a copy of the call takes nothing.
--
-- If a session has more holds left than its field says, a failover has lost acquires of it. Then the call writes these, too.
--
-- Returns the fence, 0 for a lock taken without one, when it was the last hold and the lock is to be freed; else nil and
-- the script's answer.

--@ hold
local function lower(lock, owner, fence, holds, request, lease, field, from)
  local held = hold_of(lock, owner, field)
  if held.err then
    return nil, held
  end
  if not held[1] then
    return nil, {-1}
  end
  local by, new = tonumber(held[2] or 0) or 0, tonumber(request)
  if held[2] ~= fence and fence ~= '0' and by ~= tonumber(fence) then
    return nil, {-2, by}
  end
  local sum = tonumber(held[1]) or 0
  if field == '' and (tonumber(held[3] or 0) or 0) >= new then
    return nil, {0, sum, by}
  end
  if field == '' and holds == '0' then
    return by
  end

  -- The last hold of an owner's only session ends here: the functions behind it are not even made.
  --@ hash
  local function take(lock, from)
    local text = redis.call('HGET', lock, from)
    local n, last, taken = field_of(text)
    if n <= taken then
      from = nil
      local fields = redis.call('HGETALL', lock)
      for i = 1, #fields, 2 do
        if string.sub(fields[i], 1, 1) == '{' then
          text = fields[i + 1]
          n, last, taken = field_of(text)
          if n > taken then
            from = fields[i]
            break
          end
        end
      end
    end
    if from then
      redis.call('HSET', lock, from, string.match(text, '^%d+ %d+ ') .. taken + 1)
    end
    return from
  end

  if field == '' then
    redis.call('HSET', lock, owner, holds, '{request}', request)
    sum = tonumber(holds)
  else
    local n, last, taken = field_of(held[3])
    if last >= new then
      return nil, {0, sum, by}
    end
    local ours, left, less = tonumber(held[4] or 0) or 0, tonumber(holds), 1
    if n > taken or left > 0 and left >= n then
      less = math.max(n - taken, 0) - math.max(left - taken, 0)
      ours = ours - less
    else
      taken = left
      if take(lock, from) then
        ours = ours - 1
      end
    end
    sum = math.max(sum - less, ours)
    if sum <= 0 then
      return by
    end
    redis.call('HSET', lock, owner, sum, '{ours}', ours, field, holds .. ' ' .. request .. ' ' .. taken)
  end
  if lease ~= '0' then
    lengthen(lock, lease)
  end
  return nil, {0, sum, by}
end
