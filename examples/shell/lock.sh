#!/bin/sh
# Does a piece of work under the lock "report": lock.sh
# Needs redis-cli 7. LOCKPROXY_URL says where lockproxy is, REDIS_URL where the data is: by default behind it. The work takes
# WORK_MS milliseconds.
# Exit codes: 0 done, 1 the lock was lost and the work does not count, 69 lockproxy cannot be reached,
# 75 another client has the lock.
set -eu

locks=${LOCKPROXY_URL:-redis://127.0.0.1:7379}
data=${REDIS_URL:-$locks}
work_ms=${WORK_MS:-500}
# Each redis-cli is a connection of its own. So the lock has a fixed lease (PX), which is longer than the work and goes on
# when the connection has ended, and the fence releases it.
fence=$(redis-cli -u "$locks" LOCK report WAIT 2000 PX 30000) || exit 69 # redis-cli has said why
case $fence in
'')
	echo "busy: another client has the lock" >&2
	exit 75
	;;
*[!0-9]*)
	echo "no lock: $fence" >&2
	exit 69
	;;
esac
echo "fence $fence"

sleep "$(awk "BEGIN { print $work_ms / 1000 }")" # the work

# The store of the result compares fences, and refuses the write of a client that has lost the lock meanwhile.
write="local seen = tonumber(redis.call('HGET', KEYS[1], 'fence') or 0)
if tonumber(ARGV[1]) < seen then return 0 end
redis.call('HSET', KEYS[1], 'fence', ARGV[1], 'by', ARGV[2])
return 1"
written=$(redis-cli -u "$data" EVAL "$write" 1 report:result "$fence" shell)

released=$(redis-cli -u "$locks" UNLOCK report FENCE "$fence")
case $written:$released in
1:1) echo done ;;
1:LOSTLEASE* | 1:NOTHELD*) # the write came before any other client's, but the lock no longer protects it
	echo "lost: the lease ended before the work" >&2
	exit 1
	;;
*)
	echo "lost: write $written, unlock $released" >&2
	exit 1
	;;
esac
