#!/bin/sh
# Unpacks a Redis or Valkey of a Debian suite into the given directory: fetch-server.sh DIR SUITE PACKAGE
#
#   fetch-server.sh bin/servers/redis-8.0 trixie redis-server      the program is bin/servers/redis-8.0/redis-server
#
# Changes nothing else on the machine and needs no root: the packages are unpacked, not installed, with all libraries
# that they need, so a suite newer than the machine will do. The address is that of the machine's own Debian source.
set -eu

[ $# -eq 3 ] || {
	sed -n '2,4p' "$0" >&2
	exit 2
}
mkdir -p "$1"
dir=$(cd "$1" && pwd)
suite=$2
package=$3
die() {
	echo "fetch-server: $*" >&2
	exit 1
}
[ ! -x "$dir/$package" ] || exit 0

command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null || die "needs apt-get and dpkg-deb"
# shellcheck disable=SC1091
release=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
[ -n "$release" ] || die "this system has no code name"

rm -rf "$dir/apt" "$dir/root"
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
{
	echo "deb $source $suite main"
	case $suite in *-backports) echo "deb $source ${suite%-backports} main" ;; esac
} >"$dir/apt/sources.list"
# As if nothing were installed, so that apt names every library. No pin of the machine counts.
: >"$dir/apt/status"
foreign() {
	apt -o "Dir::Etc::sourcelist=$dir/apt/sources.list" -o Dir::Etc::sourceparts=/dev/null -o "Dir::State::status=$dir/apt/status" \
		-o Dir::Etc::preferences=/dev/null -o Dir::Etc::preferencesparts=/dev/null "$@"
}
foreign update
foreign install -y --download-only --no-install-recommends -t "$suite" "$package"
for file in "$dir"/apt/cache/archives/*.deb; do
	dpkg-deb -x "$file" "$dir/root"
done
rm -rf "$dir/apt"

# The program runs with the loader and the libraries of its own suite.
loader=$(find "$dir/root" -name 'ld-linux*.so.*' | head -n 1)
program=$dir/root/usr/bin/$package
[ -n "$loader" ] && [ -e "$program" ] || die "$suite has no $package that runs here"
libraries=$(find "$dir/root" -name '*.so.*' -exec dirname {} \; | sort -u | tr '\n' ':')
cat >"$dir/$package.new" <<END
#!/bin/sh
exec "$loader" --library-path "$libraries" --argv0 "$package" "$program" "\$@"
END
chmod 755 "$dir/$package.new"
"$dir/$package.new" --version || die "$package does not run here"
mv "$dir/$package.new" "$dir/$package"
