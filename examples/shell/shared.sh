#!/bin/sh
# Reads an index, or rebuilds it: shared.sh, shared.sh rebuild
# Any number read it at the same time (SHARED), and none while it is rebuilt.
# Needs redis-cli 7. LOCKPROXY_URL says where lockproxy is; the work takes WORK_MS milliseconds.
# Exit codes: 0 done, 1 the lock was lost and the work does not count, 69 lockproxy cannot be reached,
# 75 the lock was not free in time.
set -eu

url=${LOCKPROXY_URL:-redis://127.0.0.1:7379}
work_ms=${WORK_MS:-500}
redis() { redis-cli -u "$url" "$@"; }
work() { sleep "$(awk "BEGIN { print $work_ms / 1000 }")"; }

case ${1:-read} in
read) shared=SHARED ;;
*) shared='' ;;
esac

# Each redis-cli is a connection of its own. So the lock belongs to a name (OWNER), and has a fixed lease (PX).
owner="$(uname -n):$$:$(date +%s)"
fence=$(redis LOCK index $shared WAIT 2000 PX 30000 GRACE 30000 OWNER "$owner") || exit 69 # redis-cli has said why
case $fence in
'')
	echo "busy: the lock was not free in time" >&2
	exit 75
	;;
*[!0-9]*)
	echo "no lock: $fence" >&2
	exit 69
	;;
esac

# A rebuild writes two halves, and no reader may see one old and one new. A rebuild that has lost the lock is refused.
write="if tonumber(ARGV[1]) < tonumber(redis.call('HGET', KEYS[1], 'fence') or 0) then return 0 end
redis.call('HSET', KEYS[1], 'fence', ARGV[1], ARGV[2], ARGV[1])
return 1"
if [ "$shared" ]; then
	first=$(redis HGET index:data first)
	work
	same=$([ "$first" = "$(redis HGET index:data second)" ] && echo 1 || echo 0)
	told="read $first"
else
	same=$(redis EVAL "$write" 1 index:data "$fence" first)
	work
	same=$same$(redis EVAL "$write" 1 index:data "$fence" second)
	told="rebuilt $fence"
fi

released=$(redis UNLOCK index $shared OWNER "$owner")
case $same:$released in
1:1 | 11:1) echo "$told" ;;
*)
	echo "lost: data $same, unlock $released" >&2
	exit 1
	;;
esac
