#!/usr/bin/env bash
# proto.sh: makes api/inferencepb, api/tensorflowpb and api/xebecpb of the files in api/proto. What it makes is checked in: only a change of those files needs it, a
# package index and the Go module proxy.
set -euo pipefail
cd "$(dirname "$0")/.."
go=${GO:-go} tools=$PWD/build/proto

grpcio_tools=1.81.1 # has protoc
grpc_plugin=v1.6.2
if [[ ! -x $tools/venv/bin/python ]]; then
	"$(.ci/need.sh python)" -m venv "$tools/venv"
	"$tools/venv/bin/python" -m pip --disable-pip-version-check install --quiet "grpcio-tools==$grpcio_tools"
fi
GOBIN=$tools "$go" install google.golang.org/protobuf/cmd/protoc-gen-go # the version of go.mod
GOBIN=$tools "$go" install "google.golang.org/grpc/cmd/protoc-gen-go-grpc@$grpc_plugin"
module=github.com/xebec-serving/xebec
for file in inference.proto tensorflow/{framework,error,serving}.proto xebec/v1/functions.proto; do
	"$tools/venv/bin/python" -m grpc_tools.protoc --proto_path=api/proto \
		--plugin=protoc-gen-go="$tools/protoc-gen-go" --go_out=. --go_opt="module=$module" \
		--plugin=protoc-gen-go-grpc="$tools/protoc-gen-go-grpc" --go-grpc_out=. --go-grpc_opt="module=$module" "$file"
done
