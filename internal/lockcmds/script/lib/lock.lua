-- lock: the hash of a lock, and its exclusive hold.
--
-- Held exclusively, the hash is that of Redisson's RLock:
--   owner      how often the owner holds the lock; Redisson reads and writes this field alone
--   fence      of the grant
--   mode       lock: Redisson's read and write locks wait for a hash whose mode is not theirs. Without it they are
--              granted beside the holder, and their release counts every field that is a number down to one: a fence
--              hangs Redis
--   {by}       of an owner that was named by OWNER: the name of the acquire that made the grant, or "*" when another
--              session has acquired or extended it, too. Such an owner's holds are raised and lowered by one, by any
--              session
--   {note}     "#text", what LOCKINFO shows of the holder
--
-- Held shared, it is that of Redisson's read lock; see lib/shared.lua:
--   mode       read
--   name       of each holder, how often it holds the lock
--   {name}     "#fence" of each of ours. For an owner that was named by OWNER: "#fence" and what {by} would be
--   {}fence    "#name" of each of ours: a grant is found by its fence
--
-- The names with braces are no owner's: OWNER refuses braces. A hash without them was written by Redisson.
--
-- An owner without OWNER has its name from one acquire, and no other ever has that name. So an acquire that finds
-- the name of its owner has been granted, and no late copy of a call finds another grant. Its only session writes
-- how many holds it has. For an owner that was named by OWNER, each acquire has a name. If it finds its own name
-- beside the holds, it has been granted. Other calls for such an owner are sent once. A lost answer may leave one
-- hold too many, which no proxy renews, but never one too few.

local function milliseconds(time)
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

-- clock is Redis's time in microseconds, as grants take it for fences; 0: the user may not ask for it.
local function clock()
  local time = redis.pcall('TIME')
  return time.err and 0 or time[1] * 1000000 + time[2]
end

-- shares_ours reports whether a hash of mode read has fields by which we find a grant: a third of those of our holders.
local function shares_ours()
  local fields = redis.call('HSCAN', lock, '0', 'COUNT', 48)[2]
  for i = 1, #fields, 2 do
    if string.sub(fields[i], 1, 2) == '{}' and string.sub(fields[i + 1], 1, 1) == '#' then
      return true
    end
  end
  return false
end

-- no_lock returns Redis's error if a hash is no lock, but an application's data; else nil. It is not asked about a hash
-- with the mode and the fence of a lock of ours.
--
-- A lock that is held shared, or by a write lock of Redisson, has counts alone beside its mode, and a TTL, unless a
-- client has removed that of one that has a shared hold of ours. Any other one has one count, and may have a fence.
-- Fields of ours in braces may stand beside them. Of a crowd only the TTL is looked at.
local function no_lock(mode)
  local many, fields, counts = mode == 'read' or mode == 'write', redis.call('HLEN', lock), 0
  local all = fields <= 100 and redis.call('HGETALL', lock) or {}
  for i = 1, #all, 2 do
    if all[i] ~= 'mode' and all[i] ~= 'fence' and string.sub(all[i], 1, 1) ~= '{' then
      counts = counts + (string.find(all[i + 1], '^%d+$') and 1 or 101)
    end
  end
  if counts > 100 or many and redis.call('PTTL', lock) == -1 and not (mode == 'read' and shares_ours()) or
    not many and (mode and mode ~= 'lock' or fields > 100 or counts > 1) then
    return redis.pcall('GET', lock) -- WRONGTYPE
  end
end

-- hold_of is what the hash says of an owner's hold, exclusive or shared: {holds, fence, what {by} is, mode}, each false
-- if it is missing, and more as shared_hold does if the mode is read; or Redis's error. The owner has no hold in a
-- write lock of Redisson, whatever its name.
local function hold_of(owner)
  local held = redis.pcall('HMGET', lock, owner, 'fence', '{by}', 'mode')
  if held[4] == 'read' then
    --@
    return shared_hold(owner)
  elseif not held.err and not (held[2] and held[4] == 'lock') then
    --@
    local wrong = no_lock(held[4])
    if wrong then
      return wrong
    elseif held[4] and held[4] ~= 'lock' and not held[2] then
      held[1] = false
    end
  end
  return held
end

-- by_with is what {by} is when a session has taken part in the grant of a named owner.
local function by_with(by, field)
  return by == field and by or '*'
end

--@ fence: the next fence, larger than every earlier one of this hash slot. time is what TIME returned.
--
-- The fence is Redis's time in microseconds, or one more than the last: it also grows after FLUSHALL, a restart without
-- persistence, and the promotion of a stale replica whose clock is not behind.
--
-- Every user of locks may write any value to the counter. What cannot have been a fence, because it is no whole number
-- or lies two centuries ahead of the clock, is replaced by the time. A fence that is less far ahead, as after a clock
-- jumped back, can never come to lie further ahead: grants are slower than one in a microsecond.
--
-- Sets fence, the same as text, and replaced: 1 if the counter was replaced, else nil.
local fence = time[1] * 1000000 + time[2]
local text = time[1] .. string.sub('00000' .. time[2], -6) -- a quarter of the time of string.format
local last, replaced = redis.pcall('SET', counter, text, 'GET'), nil
if last then
  last = type(last) == 'string' and tonumber(last) or -1
  if not (last >= 0 and last < fence and last % 1 == 0) then
    if last >= fence and last <= math.min(fence + 6.3e15, 9e15) and last % 1 == 0 then
      fence = last + 1
      text = string.format('%.0f', fence)
    else
      replaced = 1
    end
    redis.call('SET', counter, text)
  end
end

--@ expire: a lock that was written gets its lease.
if type(redis.pcall('PEXPIRE', lock, lease)) == 'table' then -- the user may not, but it may SET: a lock needs a TTL
  redis.call('SET', lock, '', 'PX', 1)
  redis.call('PEXPIRE', lock, lease) -- the error
end

-- grant writes an exclusive hold with a new fence. by is what {by} is then, for a named owner; '': it is not. holds are
-- the owner's then; absent: it is a first hold. Returns the fence, and 1 if the counter was replaced, else nil.
local function grant(owner, lease, time, by, holds)
  --@ fence
  redis.call('HSET', lock, owner, holds or '1', 'fence', text, 'mode', 'lock')
  if by ~= '' then
    redis.call('HSET', lock, '{by}', by)
  end
  --@ expire
  return fence, replaced
end

-- lengthen: a key lasts for lease ms at least; '0': its TTL stays.
local function lengthen(key, lease)
  if lease ~= '0' and redis.call('PTTL', key) < tonumber(lease) then
    redis.call('PEXPIRE', key, lease)
  end
end

-- lease_anew: the lock lasts for lease ms from now on. If that is less than before, waiters learn that it may be had
-- earlier than they were told.
local function lease_anew(lease)
  local left = redis.call('PTTL', lock)
  redis.call('PEXPIRE', lock, lease)
  if left < 0 or left > tonumber(lease) then
    wake()
  end
end

-- deepen: an owner that holds the lock acquires it, whose acquire does not know that. held is what hold_of has
-- returned.
--
-- An acquire that has been granted before is known by the name of its owner, which has no other, or for a named owner
-- by its own name. It sets its lease anew, but not to an earlier end: a late copy of it may come behind an EXTENDLOCK.
-- Any other acquire of a named owner raises the holds by one. Returns {1, fence, holds, odd, place}, place 0.
local function deepen(held, owner, lease, name, field)
  local sum, by, fence, odd = tonumber(held[1]) or 0, name, held[2] and tonumber(held[2]), nil
  local again, known = name == '' or held[3] == name, fence and fence >= 1 and fence <= 9e15 and fence % 1 == 0
  if not again then
    sum, by = sum + 1, by_with(held[3], field)
  end
  if held[4] == 'read' then
    --@
    if again then
      lengthen_shared(owner, lease)
    else
      set_lease(owner, lease)
      put_shared(owner, held[2], sum, by)
    end
  elseif not known then -- it was taken without a fence, by Redisson, or the fence was written by hand
    --@
    fence, odd = grant(owner, lease, redis.call('TIME'), by, sum)
    wake() -- its lease may end earlier now
  elseif again then
    lengthen(lock, lease)
  else
    --@
    redis.call('HSET', lock, owner, sum, '{by}', by, 'mode', 'lock')
    lease_anew(lease)
  end
  return {1, fence, sum, odd or 0, 0}
end

-- lower: a session releases one hold.
--
-- The holds of a named owner are lowered by one. The owner's only session writes how many holds it has then. While
-- holds are left the lock stays, for lease ms at least; '0': its TTL stays. fence is the grant's; '0': any.
--
-- Returns the fence, 0 for a lock taken without one, when it was the last hold and is to end, and what hold_of has
-- returned; else nil and the script's answer.
local function lower(owner, fence, holds, lease, field)
  local held = hold_of(owner)
  if held.err then
    return nil, held
  elseif not held[1] then
    return nil, {-1}
  end
  local by = tonumber(held[2] or 0) or 0
  if held[2] ~= fence and fence ~= '0' and by ~= tonumber(fence) then
    return nil, {-2, by}
  end
  local left = field == '' and tonumber(holds) or (tonumber(held[1]) or 0) - 1
  if left <= 0 then
    return by, held
  elseif held[4] == 'read' then
    --@
    put_shared(owner, held[2], left, held[3])
    lengthen_shared(owner, lease)
  else
    --@
    redis.call('HSET', lock, owner, left)
    lengthen(lock, lease)
  end
  return nil, {0, left, by}
end

-- tell_others: a release has ended a grant of a named owner. If sessions of another proxy may take part in it, all
-- proxies are told in the same step that it was released, or the next renewal there would find a loss. by is what {by}
-- was; field is that of the session that releases. A user without the right to publish releases all the same.
--
-- The channel is ForcedChannel, the text that of a grant that was ended by its handle; see Forced.Message.
local function tell_others(owner, fence, field, by)
  if fence > 0 and string.match(by or '*', '^[^:]*') ~= string.match(field, '^{([^:]*)') then
    local text = string.format('%.0f', fence)
    redis.pcall('PUBLISH', 'lockproxy:forced', '-' .. text .. ' ' .. redis.sha1hex(owner .. ' ' .. text) .. ' ' .. lock)
  end
end
