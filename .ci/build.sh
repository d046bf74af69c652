#!/usr/bin/env bash
# build.sh VERSION: compiles the programs into bin/. They are static (no cgo), so they run on any Linux of the architecture.
set -euo pipefail
cd "$(dirname "$0")/.."

version=${1:-dev}

build() { # build OUTPUT PACKAGE [FLAGS…]
	echo "==> building bin/$1"
	CGO_ENABLED=0 "${GO:-go}" build -trimpath -o "bin/$1" "${@:3}" "$2"
}

mkdir -p bin
build xebec ./gateway/cmd/xebec -ldflags "-s -w -X main.version=$version"
build xebec-testworker ./worker/bindings/go/cmd/xebec-testworker
