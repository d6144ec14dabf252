-- tell_others: a release has ended a grant of a named owner. If sessions of another proxy may take part in it, all proxies
-- are told in the same step that it was released, or the next renewal there would find a loss. by is what {by} was;
-- field is that of the session that releases. A user without the right to publish releases all the same.
--
-- The channel is ForcedChannel, the text that of a grant that was ended by its handle; see Forced.Message.

local function tell_others(lock, owner, fence, field, by)
  if fence > 0 and string.match(by or '*', '^[^:]*') ~= string.match(field, '^{([^:]*)') then
    local text = string.format('%.0f', fence)
    redis.pcall('PUBLISH', 'lockproxy:forced', '-' .. text .. ' ' .. redis.sha1hex(owner .. ' ' .. text) .. ' ' .. lock)
  end
end
