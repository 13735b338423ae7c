"""plaudit.gateway.v1.RewardServerService."""

from __future__ import annotations

from typing import Any

import grpc.aio

from gateway.domain import Gateway
from gateway.servicers import _convert
from plaudit.gateway.v1 import reward_server_service_pb2
from plaudit.gateway.v1.reward_server_service_pb2_grpc import RewardServerServiceServicer

Context = grpc.aio.ServicerContext[Any, Any]


class RewardServers(RewardServerServiceServicer):
    """Converts, calls the domain, converts back."""

    def __init__(self, gateway: Gateway) -> None:
        self._servers = gateway.reward_servers

    async def CreateRewardServer(
        self, request: reward_server_service_pb2.CreateRewardServerRequest, context: Context
    ) -> reward_server_service_pb2.RewardServer:
        registration = _convert.registration_from_proto(request.reward_server)
        live = await self._servers.create(request.reward_server.name, registration)
        return _convert.reward_server_to_proto(live)

    async def GetRewardServer(
        self, request: reward_server_service_pb2.GetRewardServerRequest, context: Context
    ) -> reward_server_service_pb2.RewardServer:
        return _convert.reward_server_to_proto(await self._servers.get(request.id))

    async def ListRewardServers(
        self, request: reward_server_service_pb2.ListRewardServersRequest, context: Context
    ) -> reward_server_service_pb2.ListRewardServersResponse:
        servers = [_convert.reward_server_to_proto(live) for live in await self._servers.list()]
        return reward_server_service_pb2.ListRewardServersResponse(reward_servers=servers)

    async def DeleteRewardServer(
        self, request: reward_server_service_pb2.DeleteRewardServerRequest, context: Context
    ) -> reward_server_service_pb2.DeleteRewardServerResponse:
        await self._servers.delete(request.id)
        return reward_server_service_pb2.DeleteRewardServerResponse()
