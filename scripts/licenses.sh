#!/bin/sh
# Prints the licences of all modules in the program, a table and then the texts: licenses.sh > THIRD_PARTY_LICENSES.txt
#
# A module without a licence that this script knows is a failure: somebody has to read it.
set -eu
cd "$(dirname "$0")/.."
go=${GO:-go}

# kind FILE prints the SPDX name of a licence, or nothing.
kind() {
	if grep -q 'Apache License' "$1"; then
		echo Apache-2.0
	elif grep -q 'Permission is hereby granted, free of charge' "$1"; then
		echo MIT
	elif grep -q 'Redistribution and use in source and binary forms' "$1"; then
		if tr '\n' ' ' <"$1" | tr -s ' ' | grep -Eqi 'neither the name|endorse or promote'; then
			echo BSD-3-Clause
		else
			echo BSD-2-Clause
		fi
	fi
}

list=$(mktemp)
trap 'rm -f "$list"' EXIT
{
	echo "Go $($go env GOVERSION | sed 's/^go//') $($go env GOROOT)"
	$go list -deps -f '{{with .Module}}{{if not .Main}}{{.Path}} {{.Version}} {{.Dir}}{{end}}{{end}}' ./cmd/lockproxy | sort -u
} >"$list"

echo 'lockproxy is made of these modules besides its own code:'
echo
while read -r path version dir; do
	file=$(find "$dir/" -maxdepth 1 -iname 'licen[sc]e*' -o -maxdepth 1 -iname 'copying*' | sort | head -n 1)
	name=$([ -n "$file" ] && kind "$file" || true)
	[ -n "$name" ] || {
		echo "licenses: $path $version has no licence that is known" >&2
		exit 1
	}
	printf '  %-55s %-40s %s\n' "$path" "$version" "$name"
done <"$list"
while read -r path version dir; do
	echo
	echo "==== $path $version"
	find "$dir/" -maxdepth 1 \( -iname 'licen[sc]e*' -o -iname 'copying*' -o -iname 'notice*' \) -type f | sort |
		while read -r file; do
			echo
			cat "$file"
		done
done <"$list"
