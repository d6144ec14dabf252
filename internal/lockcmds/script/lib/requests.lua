-- requests: the last requests that were applied of an owner's sessions, as one text that is no number: that of the only
-- session, or for a named owner "session=request session=request …". field is the session's; empty: it is the only one.

local function last_of(requests, field)
  if field == '' then
    return requests
  end
  for session, last in string.gmatch(requests, '([^ =]+)=(%d+)') do
    if '{' .. session .. '}' == field then
      return last
    end
  end
  return false
end

-- requests_with: the text with the last requests, with that of one session replaced; request nil: without it.
local function requests_with(requests, field, request)
  if field == '' then
    return request
  end
  local all = {}
  for session, last in string.gmatch(requests, '([^ =]+)=(%d+)') do
    if '{' .. session .. '}' ~= field then
      all[#all + 1] = session .. '=' .. last
    end
  end
  if request then
    all[#all + 1] = string.sub(field, 2, -2) .. '=' .. request
  end
  return table.concat(all, ' ')
end

-- number_in is last_of as a number.
local function number_in(requests, field)
  return tonumber(last_of(requests, field) or 0) or 0
end
