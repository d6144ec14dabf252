#!/bin/sh
# Installs promtool, Prometheus's own tool that checks metrics and alerts, if it is missing: apt-get's package
# prometheus, or brew's. Elsewhere the target fails.
set -eu

command -v promtool >/dev/null 2>&1 && exit 0
if command -v apt-get >/dev/null 2>&1; then
	. "$(dirname "$0")/apt.sh"
	apt_update
	apt install -y --no-install-recommends prometheus
elif command -v brew >/dev/null 2>&1; then
	brew install prometheus
else
	echo "install-promtool: no apt-get or brew here; install promtool by hand" >&2
	exit 1
fi
