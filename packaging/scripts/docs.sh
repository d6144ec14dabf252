#!/bin/sh
# Writes the documents of the packages to a directory: README, CHANGELOG, SECURITY and docs, which link to each other
# and to the settings. A link to a file of the repository alone becomes its text.
set -eu
out=$1
kept=$(printf '\001') # marks the links that stay
rm -rf "$out"
mkdir -p "$out/docs"
for file in README.md CHANGELOG.md SECURITY.md docs/*.md; do
	sed -E -e "s/\]\((https?:|#)/](${kept}\1/g" \
		-e "s/\]\((\.\.\/)?configs\/lockproxy\.yml\)/](${kept}\1lockproxy.yml)/g" \
		-e "s/\]\(((docs\/|\.\.\/)?[A-Z-]+\.md|docs\/statuspage\.png)([)#])/](${kept}\1\3/g" \
		-e "s/\]\(${kept}CONTRIBUTING/](CONTRIBUTING/g" \
		-e "s/\[([^][]*)\]\([^)${kept}][^)]*\)/\1/g" -e "s/${kept}//g" "$file" >"$out/$file"
done
cp docs/statuspage.png "$out/docs/"
cp configs/lockproxy.yml "$out/"
