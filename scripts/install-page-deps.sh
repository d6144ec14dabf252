#!/bin/sh
# Installs Chromium, in which the status page is tested, if it is missing: 90 MB. Only where apt-get can; elsewhere the test is skipped.
set -eu

for name in chromium chromium-browser google-chrome; do
	command -v "$name" >/dev/null 2>&1 && exit 0
done
if ! command -v apt-get >/dev/null 2>&1; then
	echo "install-page-deps: no apt-get here; install Chromium by hand, or its test is skipped" >&2
	exit 0
fi
sudo=''
[ "$(id -u)" -eq 0 ] || sudo=sudo
apt() {
	$sudo env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=300 -o Acquire::Retries=5 "$@"
}
apt update || echo "install-page-deps: apt-get update failed; trying with the lists at hand" >&2
apt install -y --no-install-recommends chromium
