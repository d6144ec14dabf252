# How the scripts here install packages of Debian and Ubuntu. They read this file with ".".
# shellcheck shell=sh

sudo=''
[ "$(id -u)" -eq 0 ] || sudo=sudo

# Another apt may run on the machine, as it does shortly after a boot: its lock is waited for. The scripts here take
# turns: an update has another lock, which apt does not wait for.
apt() {
	$sudo flock /var/tmp/lockproxy-apt.lock env DEBIAN_FRONTEND=noninteractive \
		apt-get -q -o DPkg::Lock::Timeout=300 -o Acquire::Retries=5 "$@"
}

apt_update() {
	apt update || echo "$(basename "$0" .sh): apt-get update failed; trying with the lists at hand" >&2
}
