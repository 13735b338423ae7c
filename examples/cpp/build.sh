#!/usr/bin/env bash
# Builds build/reward-server. It is the ordinary way; Debian's packages are named in README.md.
set -euo pipefail
cd "$(dirname "$0")"
cmake -S . -B build ${PROTO_DIR:+-DPROTO_DIR="$PROTO_DIR"}
cmake --build build --parallel 2
