#!/usr/bin/env bash
# goproxy.sh DIR [VERSION]: writes a module proxy with this tree as VERSION (v0.1.0) into DIR, and prints what GOPROXY names it by. A
# module of yours uses the Go binding from it before a release is published, without `replace`. In your module:
#
#   export GOPROXY="$(…/.ci/goproxy.sh /srv/goproxy),$(go env GOPROXY)" GONOSUMDB=github.com/xebec-serving/xebec
#   go get github.com/xebec-serving/xebec@v0.1.0
set -euo pipefail

dir=${1:?usage: goproxy.sh DIR [VERSION]} version=${2:-v0.1.0}
mkdir -p "$dir"
dir=$(cd "$dir" && pwd)
cd "$(dirname "$0")/.."
module=$(awk '$1 == "module" {print $2; exit}' go.mod)

# The tree as it is, with what git does not ignore. An index of its own leaves that of the checkout alone.
export GIT_INDEX_FILE=$dir/.index
trap 'rm -f "$GIT_INDEX_FILE" "$GIT_INDEX_FILE.lock"' EXIT
git read-tree HEAD
git add --all
tree=$(git write-tree)

at=$dir/$module/@v
mkdir -p "$at"
git archive --format=zip --prefix="$module@$version/" --output="$at/$version.zip" "$tree"
cp go.mod "$at/$version.mod"
printf '{"Version":"%s"}\n' "$version" >"$at/$version.info"
ls "$at" | sed -n 's/\.info$//p' >"$at/list"
echo "file://$dir"
