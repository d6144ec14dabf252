#!/bin/sh
# Installs what `make interop` needs beyond Go, where apt-get can: HAProxy, and the libraries of the examples in PHP,
# Ruby and C, 50 MB. Elsewhere, or if it fails, their tests are skipped.
set -eu

missing=''
command -v haproxy >/dev/null 2>&1 || [ -x /usr/sbin/haproxy ] || missing="$missing haproxy"
php -r 'exit(extension_loaded("redis") ? 0 : 1);' 2>/dev/null || missing="$missing php-cli php-redis"
ruby -e 'require "redis"' 2>/dev/null || missing="$missing ruby ruby-redis"
[ -e /usr/include/hiredis/hiredis.h ] || missing="$missing gcc libc6-dev libhiredis-dev"
[ -n "$missing" ] || exit 0
if ! command -v apt-get >/dev/null 2>&1; then
	echo "install-interop-deps: no apt-get here; the tests that need these are skipped:$missing" >&2
	exit 0
fi
. "$(dirname "$0")/apt.sh"
for package in $missing; do # one by one: a package that is not to be had does not cost the others
	apt install -y --no-install-recommends "$package" ||
		echo "install-interop-deps: no $package here; its tests are skipped" >&2
done
