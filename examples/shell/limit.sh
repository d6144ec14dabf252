#!/bin/sh
# One of at most five jobs that run at the same time (LIMIT 5), on all machines together.
# Needs redis-cli 7. LOCKPROXY_URL says where lockproxy is; the work takes WORK_MS milliseconds.
# Exit codes: 0 done, 1 the lock was lost and the work does not count, 69 lockproxy cannot be reached,
# 75 the lock was not free in time.
set -eu

url=${LOCKPROXY_URL:-redis://127.0.0.1:7379}
work_ms=${WORK_MS:-500}
redis() { redis-cli -u "$url" "$@"; }

# Each redis-cli is a connection of its own. So the permit has a fixed lease (PX), and is released by its fence.
fence=$(redis LOCK jobs LIMIT 5 WAIT 2000 PX 30000 GRACE 30000) || exit 69 # redis-cli has said why
case $fence in
'')
	echo "busy: five jobs run" >&2
	exit 75
	;;
*[!0-9]*)
	echo "no lock: $fence" >&2
	exit 69
	;;
esac
echo "fence $fence"

sleep "$(awk "BEGIN { print $work_ms / 1000 }")"

released=$(redis UNLOCK jobs FENCE "$fence")
if [ "$released" != 1 ]; then
	echo "lost: $released" >&2
	exit 1
fi
echo done
