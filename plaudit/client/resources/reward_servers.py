"""Reward servers: register, read, forget."""

from __future__ import annotations

from collections.abc import Sequence

import grpc

from plaudit.client import _convert, models
from plaudit.client._calls import Caller
from plaudit.gateway.v1 import reward_server_service_pb2 as pb
from plaudit.gateway.v1.reward_server_service_pb2_grpc import RewardServerServiceStub


class RewardServers:
    """`client.reward_servers`."""

    def __init__(self, channel: grpc.Channel, caller: Caller) -> None:
        self._stub = RewardServerServiceStub(channel)
        self._caller = caller

    def create(self, name: str, addresses: Sequence[str]) -> models.RewardServer:
        """Registers a server, which need not be up; `addresses` are its replicas, host:port each."""
        server = _convert.carry(pb.RewardServer, {"name": name, "addresses": addresses})
        request = pb.CreateRewardServerRequest(reward_server=server)
        return _convert.reward_server_from_proto(self._caller.call(self._stub.CreateRewardServer, request))

    def get(self, server_id: str) -> models.RewardServer:
        """A server by id or name, with its rewards as it answers now."""
        return _convert.reward_server_from_proto(
            self._caller.call(
                self._stub.GetRewardServer, _convert.carry(pb.GetRewardServerRequest, {"id": server_id})
            )
        )

    def list(self) -> list[models.RewardServer]:
        """All servers by name, with their rewards as they answer now."""
        response = self._caller.call(self._stub.ListRewardServers, pb.ListRewardServersRequest())
        return [_convert.reward_server_from_proto(server) for server in response.reward_servers]

    def delete(self, server_id: str) -> None:
        """Forgets a server."""
        self._caller.call_once(
            self._stub.DeleteRewardServer, _convert.carry(pb.DeleteRewardServerRequest, {"id": server_id})
        )
