#!/usr/bin/env bash
# fuzz.sh TIME: runs every native fuzz target for TIME, one after the other, and names the targets that failed.
# Go writes failing inputs to testdata/fuzz of the package: commit them with the fix.
set -uo pipefail
cd "$(dirname "$0")/.."
go=${GO:-go} time=${1:-20s}

found=0 count=0
while IFS=: read -r file target; do
	((++count))
	dir=$(dirname "$file")
	echo "==> fuzzing $dir $target for $time"
	"$go" test -run '^$' -fuzz "^$target\$" -fuzztime "$time" "./$dir" || { found=1; failures+="  $dir $target"$'\n'; }
done < <(git ls-files --cached --others --exclude-standard '*_test.go' | xargs grep -oE '^func Fuzz[A-Za-z0-9_]*' | sed 's/:func /:/')

if ((count == 0)); then echo 'error: no fuzz targets found' >&2; exit 1; fi
if ((found)); then printf '==> fuzz: FAILED\n%s' "$failures"; exit 1; fi
echo "==> fuzz: $count targets, no failures"
