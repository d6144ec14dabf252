-- permits_of returns the other keys of a lock with permits; see lib/permits.lua. By Redisson's rule the locks "a" and
-- "{a}" share the first one.

local function permits_of(lock)
  local base = string.find(lock, '{', 1, true) and lock or '{' .. lock .. '}'
  local own = string.find(lock, '^{[^{]+}$') and '{}' or ''
  return base .. ':timeout', base .. ':permits' .. own, base .. ':owners' .. own
end
