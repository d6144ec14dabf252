#!/bin/sh
# Does a piece of work under the lock "report": lock.sh
# Needs redis-cli 7. LOCKPROXY_URL says where lockproxy is; the work takes WORK_MS milliseconds.
# Exit codes: 0 done, 1 the lock was lost and the work does not count, 69 lockproxy cannot be reached,
# 75 another client has the lock.
set -eu

url=${LOCKPROXY_URL:-redis://127.0.0.1:7379}
work_ms=${WORK_MS:-500}
redis() { redis-cli -u "$url" "$@"; }

# Each redis-cli is a connection of its own. So the lock belongs to a name instead of a connection (OWNER), has a fixed
# lease (PX) that must be longer than the work, and keeps it when the connection ends (GRACE).
owner="$(uname -n):$$:$(date +%s)"
fence=$(redis LOCK report WAIT 2000 PX 30000 GRACE 30000 OWNER "$owner") || exit 69 # redis-cli has said why
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
written=$(redis EVAL "$write" 1 report:result "$fence" shell)

released=$(redis UNLOCK report OWNER "$owner")
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
