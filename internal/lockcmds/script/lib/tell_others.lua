-- tell_others: a release has ended a grant of a named owner. Proxies whose sessions acquired it, too, are told in the same
-- step that it was released, or their next renewal would find a loss. sessions are the names of all these sessions, each
-- behind a brace; field is that of the session that releases. A user without the right to publish releases all
-- the same.
--
-- The channel is ForcedChannel, the text that of a grant that was ended by its handle; see Forced.Message.

local function tell_others(lock, owner, fence, field, sessions)
  local own = string.match(field, '^{([^:]+):')
  if not own or not fence or fence <= 0 then
    return
  end
  for process in string.gmatch(sessions, '{([^:{}]+):') do
    if process ~= own then
      local by = string.format('%.0f', fence)
      redis.pcall('PUBLISH', 'lockproxy:forced', '-' .. by .. ' ' .. redis.sha1hex(owner .. ' ' .. by) .. ' ' .. lock)
      return
    end
  end
end
