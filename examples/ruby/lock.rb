# Does a piece of work under the lock "report". Needs: gem install redis, or apt-get install ruby-redis
#
# LOCKPROXY_URL says where lockproxy is, REDIS_URL where the data is: by default behind it. The work takes WORK_MS
# milliseconds.
# Exit codes: 0 done, 1 the lock was lost and the work does not count, 69 lockproxy cannot be reached, 75 another client has the lock.

require "redis"

# The store of the result compares fences, and refuses the write of a client that has lost the lock meanwhile.
WRITE = <<~LUA
  local seen = tonumber(redis.call('HGET', KEYS[1], 'fence') or 0)
  if tonumber(ARGV[1]) < seen then return 0 end
  redis.call('HSET', KEYS[1], 'fence', ARGV[1], 'by', ARGV[2])
  return 1
LUA

def finish(code, why)
  warn why
  exit code
end

# A lock without PX is renewed while its connection is open: so one connection, and no reconnecting, which
# would go on without the lock.
url = ENV.fetch("LOCKPROXY_URL", "redis://127.0.0.1:7379")
redis = Redis.new(url: url, timeout: 5, reconnect_attempts: 0)
data = Redis.new(url: ENV.fetch("REDIS_URL", url))
begin
  # WAIT stays below the timeout. GRACE 0: if this process dies, the lock is free at once.
  fence = redis.call("LOCK", "report", "WAIT", 2000, "GRACE", 0)
rescue Redis::BaseError => e
  finish 69, "no lock: #{e.message}"
end
finish 75, "busy: another client has the lock" if fence.nil?
puts "fence #{fence}"

begin
  sleep ENV.fetch("WORK_MS", "500").to_i / 1000.0 # the work
  written = data.eval(WRITE, keys: ["report:result"], argv: [fence, "ruby"])
ensure
  begin
    redis.call("UNLOCK", "report")
  rescue Redis::CommandError => e
    raise unless e.message.start_with?("LOSTLEASE", "NOTHELD")
    finish 1, "lost: #{e.message}"
  end
end
finish 1, "lost: a client with a larger fence has written" if written.zero?
puts "done"
