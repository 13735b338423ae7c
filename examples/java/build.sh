#!/usr/bin/env bash
# Builds build/classes and the starter build/reward-server with Debian's packages alone. README.md has the
# ordinary way, Maven.
set -euo pipefail
cd "$(dirname "$0")"
proto=${PROTO_DIR:-../../protos/plaudit/reward/v1}
jars=/usr/share/java
classpath=$(printf ':%s.jar' \
    $jars/grpc-{api,context,core,netty,protobuf,protobuf-lite,stub} \
    $jars/netty-{buffer,codec,codec-http,codec-http2,common,handler,resolver,transport} \
    $jars/{protobuf,gson,guava,perfmark-api,geronimo-annotation-1.3-spec})
classpath=${classpath#:}

rm -rf build
mkdir -p build/generated build/classes
protoc -I "$proto" -I src/main/proto --java_out=build/generated \
    --plugin=protoc-gen-grpc-java="$(command -v grpc_java_plugin || command -v protoc-gen-grpc-java)" \
    --grpc-java_out=build/generated reward_service.proto health.proto
# Generated code calls what protobuf has deprecated since: no lint for it.
javac --release 17 -d build/classes -cp "$classpath" -proc:none -nowarn $(find build/generated -name '*.java')
javac --release 17 -d build/classes -cp "build/classes:$classpath" -proc:none -Xlint:all -Werror \
    $(find src/main/java -name '*.java')

cat > build/reward-server <<STARTER
#!/bin/sh
exec java -cp "$PWD/build/classes:$classpath" com.example.rewards.Main "\$@"
STARTER
chmod +x build/reward-server
