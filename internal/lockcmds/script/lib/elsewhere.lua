-- elsewhere reports whether one of the sessions of a named owner is another proxy's. sessions are their names, each behind a
-- brace; field is that of the session that asks.

local function elsewhere(field, sessions)
  local own = string.match(field, '^{([^:]+):')
  for process in string.gmatch(sessions, '{([^:{}]+):') do
    if own and process ~= own then
      return true
    end
  end
  return false
end
