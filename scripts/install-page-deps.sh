#!/bin/sh
# Installs Chromium, in which the status page is tested, if it is missing: 90 MB. Only where apt-get can; elsewhere the
# test is skipped.
set -eu

for name in chromium chromium-browser google-chrome; do
	command -v "$name" >/dev/null 2>&1 && exit 0
done
if ! command -v apt-get >/dev/null 2>&1; then
	echo "install-page-deps: no apt-get here; install Chromium by hand, or its test is skipped" >&2
	exit 0
fi
. "$(dirname "$0")/apt.sh"
apt_update
apt install -y --no-install-recommends chromium
