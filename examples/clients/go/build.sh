#!/usr/bin/env bash
# Builds ./train-and-watch with Debian's packages alone: no module is downloaded. README.md has the ordinary way.
set -euo pipefail
cd "$(dirname "$0")"
module=example.com/train-and-watch
contracts=(plaudit/gateway/v1/training_job.proto plaudit/gateway/v1/training_job_service.proto)

options=(--go_opt=module=$module --go-grpc_opt=module=$module)
for contract in "${contracts[@]}"; do
  options+=("--go_opt=M$contract=$module/gatewaypb" "--go-grpc_opt=M$contract=$module/gatewaypb")
done
protoc -I ../../../protos --go_out=. --go-grpc_out=. "${options[@]}" "${contracts[@]}"

# The packages of Debian lie in a GOPATH; this one joins them.
mkdir -p build/gopath/src/example.com
ln -sfn "$PWD" build/gopath/src/$module
export GO111MODULE=off GOPATH=$PWD/build/gopath:/usr/share/gocode
go vet $module
go build -o train-and-watch $module
