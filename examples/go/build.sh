#!/usr/bin/env bash
# Builds ./reward-server with Debian's packages alone: no module is downloaded. README.md has the ordinary way.
set -euo pipefail
cd "$(dirname "$0")"
proto=../../protos/plaudit/reward/v1

mkdir -p build/gopath/src/example.com rewardpb
protoc -I "$proto" reward_service.proto \
    --go_out=rewardpb --go_opt=paths=source_relative \
    --go_opt=Mreward_service.proto=example.com/reward-server/rewardpb \
    --go-grpc_out=rewardpb --go-grpc_opt=paths=source_relative \
    --go-grpc_opt=Mreward_service.proto=example.com/reward-server/rewardpb

# The packages of Debian lie in a GOPATH; this one joins them.
ln -sfn "$PWD" build/gopath/src/example.com/reward-server
export GO111MODULE=off GOPATH=$PWD/build/gopath:/usr/share/gocode
go vet example.com/reward-server
go build -o reward-server example.com/reward-server
