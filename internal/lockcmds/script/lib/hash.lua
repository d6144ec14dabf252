-- hash: the fields of a lock's hash. It has one of two forms.
--
-- Held exclusively, as Redisson's RLock:
--   owner      how often the owner holds the lock; Redisson reads and writes this field alone
--   fence      of the grant
--   mode       lock: Redisson's read and write locks wait for a hash whose mode is not theirs. Without it they are granted beside
--              the holder, and their release counts every field that is a number down to one: a fence hangs Redis
--   {by}       of an owner that was named by OWNER: the name of the acquire that made the grant, or "*" when another session has
--              acquired or extended it, too. Such an owner's holds are raised and lowered by one, by any session
--   {note}     "#text", what LOCKINFO shows of the holder
--
-- Held shared, as Redisson's read lock; see lib/shared.lua:
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

local function lengthen(lock, lease)
  if redis.call('PTTL', lock) < tonumber(lease) then
    redis.call('PEXPIRE', lock, lease)
  end
end

-- shares_ours reports whether a hash of mode read has fields by which we find a grant: a third of those of our holders.
local function shares_ours(lock)
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
local function no_lock(lock, mode)
  local many, fields, counts = mode == 'read' or mode == 'write', redis.call('HLEN', lock), 0
  local all = fields <= 100 and redis.call('HGETALL', lock) or {}
  for i = 1, #all, 2 do
    if all[i] ~= 'mode' and all[i] ~= 'fence' and string.sub(all[i], 1, 1) ~= '{' then
      counts = counts + (string.find(all[i + 1], '^%d+$') and 1 or 101)
    end
  end
  if counts > 100 or many and redis.call('PTTL', lock) == -1 and not (mode == 'read' and shares_ours(lock)) or
    not many and (mode and mode ~= 'lock' or fields > 100 or counts > 1) then
    return redis.pcall('GET', lock) -- WRONGTYPE
  end
end
