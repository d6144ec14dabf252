#!/bin/sh
# Downloads what the Go module in the given directory depends on: fetch-modules.sh [DIR]
#
# The go command downloads by itself, but gives up at the first broken connection. That this one gives up is a message, not
# a failure: what is needed may be there all the same, and if not, the build says so.
set -u
cd "$(dirname "$0")/../${1:-.}"

for pause in 5 20 none; do
	"${GO:-go}" mod download && exit 0
	[ "$pause" = none ] || sleep "$pause"
done
echo "fetch-modules: not all modules of $(pwd) could be downloaded" >&2
