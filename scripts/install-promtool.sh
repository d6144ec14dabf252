#!/bin/sh
# Installs promtool, Prometheus's own tool that checks metrics and alerts, if it is missing: apt-get's package prometheus, or brew's. Elsewhere the
# target fails.
set -eu

command -v promtool >/dev/null 2>&1 && exit 0
if command -v apt-get >/dev/null 2>&1; then
	sudo=''
	[ "$(id -u)" -eq 0 ] || sudo=sudo
	apt() {
		$sudo env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=300 -o Acquire::Retries=5 "$@"
	}
	apt update || echo "install-promtool: apt-get update failed; trying with the lists at hand" >&2
	apt install -y --no-install-recommends prometheus
elif command -v brew >/dev/null 2>&1; then
	brew install prometheus
else
	echo "install-promtool: no apt-get or brew here; install promtool by hand" >&2
	exit 1
fi
