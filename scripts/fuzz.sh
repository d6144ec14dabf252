#!/bin/sh
# Runs every fuzz target of the module for the given time each (default 10s).
# go test -fuzz takes one target at a time, so the targets are found by name.
set -eu
cd "$(dirname "$0")/.."

fuzztime=${1:-10s}
count=0
for file in $(grep -rlE --include='*_test.go' '^func Fuzz' cmd internal || true); do
	package=./$(dirname "$file")/
	for target in $(sed -nE 's/^func (Fuzz[A-Za-z0-9_]*)\(.*/\1/p' "$file"); do
		echo "== $package $target"
		go test -run '^$' -fuzz "^$target\$" -fuzztime "$fuzztime" "$package"
		count=$((count + 1))
	done
done
echo "fuzz: $count targets passed"
