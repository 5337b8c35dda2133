#!/usr/bin/env bash
# Generates the Python stubs of all protos into the directory given: proto/generate.sh OUT
# Needs grpcio-tools and mypy-protobuf on the PATH (`make proto` sees to it).
set -euo pipefail
out=$(realpath "$1")
cd "$(dirname "$0")"
messages=(hotwired/v1/*.proto hotwired/node/v1/*.proto)
services=(hotwired/v1/steering_service.proto hotwired/node/v1/node.proto)
python -m grpc_tools.protoc -I. --python_out="$out" --pyi_out="$out" "${messages[@]}"
python -m grpc_tools.protoc -I. --grpc_python_out="$out" --mypy_grpc_out="$out" "${services[@]}"
