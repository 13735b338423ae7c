"""The calls of a server under test, as bare as gRPC has them.

Answers come as bytes: one that cannot be read is a finding, and not an error of gRPC's.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import grpc.aio
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from plaudit.reward.v1 import reward_service_pb2 as pb

SERVICE_NAME: Final = "plaudit.reward.v1.RewardService"

ScoreCall: TypeAlias = "grpc.aio.StreamStreamCall[bytes, bytes]"


class Wire:
    """One connection to the server."""

    def __init__(self, channel: grpc.aio.Channel, metadata: tuple[tuple[str, str], ...]) -> None:
        self.channel = channel
        self._metadata = metadata

    async def server_info(self, timeout: float) -> bytes:
        """GetServerInfo. Raises AioRpcError."""
        call: Any = self.channel.unary_unary(
            f"/{SERVICE_NAME}/GetServerInfo", request_serializer=pb.GetServerInfoRequest.SerializeToString
        )
        request = pb.GetServerInfoRequest(client_name="plaudit conformance suite")
        answer: bytes = await call(request, timeout=timeout, metadata=self._metadata)
        return answer

    def score(self) -> ScoreCall:
        """Score. Frames are written as bytes, so that any bytes can be."""
        call: Any = self.channel.stream_stream(f"/{SERVICE_NAME}/Score")
        stream: ScoreCall = call(metadata=self._metadata)
        return stream

    async def score_once(self, request: pb.ScoreOnceRequest, timeout: float) -> bytes:
        """ScoreOnce. Raises AioRpcError."""
        call: Any = self.channel.unary_unary(
            f"/{SERVICE_NAME}/ScoreOnce", request_serializer=pb.ScoreOnceRequest.SerializeToString
        )
        answer: bytes = await call(request, timeout=timeout, metadata=self._metadata)
        return answer

    async def make_examples(self, request: pb.MakeExamplesRequest, timeout: float) -> bytes:
        """MakeExamples. Raises AioRpcError."""
        call: Any = self.channel.unary_unary(
            f"/{SERVICE_NAME}/MakeExamples", request_serializer=pb.MakeExamplesRequest.SerializeToString
        )
        answer: bytes = await call(request, timeout=timeout, metadata=self._metadata)
        return answer

    async def health(self, service: str, timeout: float) -> str:
        """Name of the status that grpc.health.v1 tells of a service. Raises AioRpcError."""
        stub: Any = health_pb2_grpc.HealthStub(self.channel)
        answer = await stub.Check(
            health_pb2.HealthCheckRequest(service=service), timeout=timeout, metadata=self._metadata
        )
        return str(health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status))

    async def reflected_services(self, timeout: float) -> list[str]:
        """Names of the services that reflection lists. Raises AioRpcError."""
        stub: Any = reflection_pb2_grpc.ServerReflectionStub(self.channel)
        call = stub.ServerReflectionInfo(timeout=timeout, metadata=self._metadata)
        await call.write(reflection_pb2.ServerReflectionRequest(list_services=""))
        answer = await call.read()
        call.cancel()
        if answer is grpc.aio.EOF:
            return []
        return [service.name for service in answer.list_services_response.service]
