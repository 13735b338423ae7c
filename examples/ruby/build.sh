#!/usr/bin/env bash
# Generates lib/generated from the proto file. It takes the gem's compiler, or protoc with Debian's plugin.
set -euo pipefail
cd "$(dirname "$0")"
proto=${PROTO_DIR:-../../protos/plaudit/reward/v1}

mkdir -p lib/generated
grpc_tools_ruby_protoc -I "$proto" --ruby_out=lib/generated --grpc_out=lib/generated reward_service.proto
ruby -c bin/reward_server lib/reward_server/*.rb >/dev/null
