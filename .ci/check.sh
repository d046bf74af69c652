#!/usr/bin/env bash
# check.sh LINTER@VERSION: the checks before a commit, which take a minute or two. Stops at the first failure.
set -euo pipefail
cd "$(dirname "$0")/.."
go=${GO:-go}

echo '==> gofmt'
unformatted=$(git ls-files -z --cached --others --exclude-standard '*.go' | xargs -0 -r gofmt -l)
if [[ -n $unformatted ]]; then
	echo "error: not formatted (run make fmt):" >&2
	echo "$unformatted" >&2
	exit 1
fi

echo '==> go vet'
"$go" vet ./...

echo '==> import rules and package essays'
"$go" test -count=1 .

echo '==> golangci-lint (the first run compiles it: about a minute)'
"$go" run "$1" run ./...

echo '==> go test -short'
"$go" test -short ./...

echo '==> check: ok'
