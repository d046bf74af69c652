#!/usr/bin/env bash
# run.sh [FLAGS of peers…]: compares Xebec with other servers of models; results go to bench/results. METHOD.md says what they mean.
set -euo pipefail
cd "$(dirname "$0")/../.."
.ci/build.sh bench
echo '==> building bin/peers'
CGO_ENABLED=0 "${GO:-go}" build -trimpath -o bin/peers ./bench/cmd/peers
exec bin/peers "$@"
