#!/bin/sh
# Looks at a counter under a shared lock, and then takes the lock alone to change it (an upgrade).
# No other client changes the counter between the look and the change.
# Needs redis-cli 7. LOCKPROXY_URL says where lockproxy is; the work takes WORK_MS milliseconds.
# Exit codes: 0 done, 1 the lock was lost and the work does not count, 69 lockproxy cannot be reached,
# 75 the lock was not free in time.
set -eu

url=${LOCKPROXY_URL:-redis://127.0.0.1:7379}
work_ms=${WORK_MS:-500}
redis() { redis-cli -u "$url" "$@"; }

# Each redis-cli is a connection of its own. So the lock belongs to a name (OWNER), and has a fixed lease (PX).
owner="$(uname -n):$$:$(date +%s)"
lock() { redis LOCK counter "$@" WAIT 2000 PX 30000 OWNER "$owner"; }
shared() {
	fence=$(lock SHARED) || exit 69 # redis-cli has said why
	case $fence in
	'') busy ;;
	*[!0-9]*)
		echo "no lock: $fence" >&2
		exit 69
		;;
	esac
	count=$(redis HGET counter:data count)
}
leave() { redis UNLOCK counter SHARED OWNER "$owner"; }
busy() {
	echo "busy: the lock was not free in time" >&2
	exit 75
}

shared
sleep "$(awk "BEGIN { print $work_ms / 1000 }")"
while fence=$(lock); do
	case $fence in
	DEADLOCK*) # another holder is about to change it, and waits for this one: let it, and look again
		leave >/dev/null
		shared
		;;
	*) break ;;
	esac
done
case $fence in
'')
	leave >/dev/null
	busy
	;;
*[!0-9]*)
	echo "lost: $fence" >&2
	exit 1
	;;
esac

write="if tonumber(ARGV[1]) < tonumber(redis.call('HGET', KEYS[1], 'fence') or 0) then return 0 end
redis.call('HSET', KEYS[1], 'fence', ARGV[1], 'count', ARGV[2])
return 1"
count=$((${count:-0} + 1))
written=$(redis EVAL "$write" 1 counter:data "$fence" "$count")
released=$(redis UNLOCK counter OWNER "$owner"):$(leave)
if [ "$written:$released" != 1:1:1 ]; then
	echo "lost: write $written, unlock $released" >&2
	exit 1
fi
echo "count $count"
