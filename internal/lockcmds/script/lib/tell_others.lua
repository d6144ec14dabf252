-- tell_others: a release has ended a grant of a named owner. Proxies whose sessions acquired it, too, are told in the same
-- step that it was released, or their next renewal would find a loss. sessions are the names of all these sessions, each
-- behind a brace; field is that of the session that releases. A user without the right to publish releases all
-- the same.
--
-- The channel is ForcedChannel, the text that of a grant that was ended by its handle; see Forced.Message.

--@ elsewhere
local function tell_others(lock, owner, fence, field, sessions)
  if fence and fence > 0 and elsewhere(field, sessions) then
    local by = string.format('%.0f', fence)
    redis.pcall('PUBLISH', 'lockproxy:forced', '-' .. by .. ' ' .. redis.sha1hex(owner .. ' ' .. by) .. ' ' .. lock)
  end
end
