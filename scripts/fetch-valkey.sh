#!/bin/sh
# Unpacks valkey-server from Debian's backports into the given directory: fetch-valkey.sh DIR
#
# Changes nothing else on the machine and needs no root: the packages are unpacked, not installed, and the backports
# suite is read beside the sources that the machine's apt has. Its address is that of the machine's own Debian source.
set -eu

dir=$(cd "$1" && pwd)
die() {
	echo "fetch-valkey: $*" >&2
	exit 1
}

command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null || die "needs apt-get and dpkg-deb"
# shellcheck disable=SC1091
release=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
[ -n "$release" ] || die "this system has no code name"

mkdir -p "$dir/apt/lists/partial" "$dir/apt/cache/archives/partial"
apt() {
	apt-get -q -o Acquire::Retries=5 -o "Dir::State::lists=$dir/apt/lists" -o "Dir::Cache=$dir/apt/cache" -o APT::Sandbox::User= "$@"
}
# release_source [command] prints the address of the machine's first source of packages for its release.
release_source() {
	# shellcheck disable=SC2016
	"${1:-apt-get}" indextargets --format '$(REPO_URI) $(RELEASE)' 'Created-By: Packages' |
		awk -v release="$release" '$2 == release { print $1; exit }'
}

source=$(release_source)
if [ -z "$source" ]; then # apt names its sources only once it has read them
	apt update
	source=$(release_source apt)
fi
[ -n "$source" ] || die "apt has no source for $release"
keys=/usr/share/keyrings/debian-archive-keyring.gpg
if [ -f "$keys" ]; then
	source="[signed-by=$keys] $source"
fi
echo "deb $source $release-backports main" >"$dir/apt/sources.list"
backports() {
	apt -o "Dir::Etc::sourcelist=$dir/apt/sources.list" -o Dir::Etc::sourceparts=/dev/null "$@"
}
backports update
cd "$dir/apt"
backports download valkey-server valkey-tools
for package in valkey-*.deb; do
	dpkg-deb -x "$package" "$dir"
done
rm -rf "$dir/apt"
"$dir/usr/bin/valkey-server" --version || die "valkey-server does not run here"
