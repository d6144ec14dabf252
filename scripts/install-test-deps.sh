#!/bin/sh
# Installs what the tests need beyond Go, only if it is missing:
#   redis-server  the real Redis behind the proxy
#   a C compiler  the race detector links with cgo
#   bash, dash    the shells whose control of jobs is tried
#   iproute2      network namespaces, where we are root on Linux; elsewhere those tests are skipped
# Knows apt-get, apk, dnf and brew; uses sudo when not root. POSIX sh: a small image has no bash.
set -eu

has() { command -v "$1" >/dev/null 2>&1; }

redis='' cc='' ip='' shells=''
has redis-server || redis=missing
has "$(go env CC)" || cc=missing
for shell in bash dash; do
	[ "$(uname)" != Linux ] || has "$shell" || shells="$shells $shell"
done
if [ "$(uname)" = Linux ] && [ "$(id -u)" -eq 0 ]; then
	has ss || ip=missing # which comes with the ip command that knows namespaces
fi
if [ -z "$redis$cc$ip$shells" ]; then
	exit 0
fi
echo "install-test-deps: installing${redis:+ redis-server}${cc:+ a C compiler}${ip:+ iproute2}$shells" >&2

. "$(dirname "$0")/apt.sh"

# The unquoted expansions below are lists of package names.
# shellcheck disable=SC2086
install_all() {
	if has apt-get; then
		apt_update
		apt install -y --no-install-recommends ${redis:+redis-server} ${cc:+gcc libc6-dev} ${ip:+iproute2} $shells
	elif has apk; then
		$sudo apk add --no-cache ${redis:+redis} ${cc:+gcc musl-dev} ${ip:+iproute2} $shells
	elif has dnf; then
		# Newer Fedoras ship Valkey in Redis's place; its compatibility package provides redis-server.
		$sudo dnf install -y ${redis:+redis} ${cc:+gcc} ${ip:+iproute} $shells ||
			$sudo dnf install -y ${redis:+valkey-compat-redis} ${cc:+gcc} ${ip:+iproute} $shells
	elif has brew; then
		# The C compiler is part of Apple's command line tools, which brew itself needs.
		brew install redis
	else
		echo "install-test-deps: no apt-get, apk, dnf or brew here; install redis-server and a C compiler by hand" >&2
		exit 1
	fi
}

# A mirror or the network may fail for a moment.
for pause in 10 30 none; do
	install_all && break
	[ "$pause" != none ] || exit 1
	sleep "$pause"
done

has redis-server || {
	echo "install-test-deps: redis-server is still missing" >&2
	exit 1
}
