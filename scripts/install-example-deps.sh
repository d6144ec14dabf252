#!/bin/sh
# Installs what the examples in PHP, Ruby and C need, where apt-get can: 40 MB. Elsewhere, or if it fails, their tests are skipped.
set -eu

php -r 'exit(extension_loaded("redis") ? 0 : 1);' 2>/dev/null && ruby -e 'require "redis"' 2>/dev/null && [ -e /usr/include/hiredis/hiredis.h ] && exit 0
if ! command -v apt-get >/dev/null 2>&1; then
	echo "install-example-deps: no apt-get here; the examples in PHP, Ruby and C are skipped unless their libraries are installed" >&2
	exit 0
fi
sudo=''
[ "$(id -u)" -eq 0 ] || sudo=sudo
$sudo env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=300 install -y --no-install-recommends \
	php-cli php-redis ruby ruby-redis gcc libc6-dev libhiredis-dev ||
	echo "install-example-deps: not installed; the examples in PHP, Ruby and C are skipped" >&2
