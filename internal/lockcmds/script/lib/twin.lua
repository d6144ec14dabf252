-- twin: the lock whose shared holders have their leases under the same names, or nil: Redisson's rule gives "a" and "{a}"
-- the same (see lib/shared.lua).

local twin = string.match(lock, '^{([^{]+)}$') or not string.find(lock, '{', 1, true) and '{' .. lock .. '}' or nil
