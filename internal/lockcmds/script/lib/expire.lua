-- expire: a lock that was written gets its lease. It stands within a function that has lock and lease, in ms.

if type(redis.pcall('PEXPIRE', lock, lease)) == 'table' then -- the user may not, but it may SET: no lock stays without a TTL
  redis.call('SET', lock, '', 'PX', 1)
  redis.call('PEXPIRE', lock, lease) -- the error
end
