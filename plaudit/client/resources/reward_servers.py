"""Reward servers: register, read, forget."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from plaudit.client import _convert, models
from plaudit.client._blocking import Blocking, blocking
from plaudit.client._wire import Wire
from plaudit.gateway.v1 import reward_server_service_pb2 as pb
from plaudit.gateway.v1.reward_server_service_pb2_grpc import RewardServerServiceStub
from plaudit.types.access import TlsAccess
from plaudit.types.validation import parse_model


class AsyncRewardServers:
    """`client.reward_servers` of an `AsyncClient`."""

    def __init__(self, wire: Wire) -> None:
        self._stub = RewardServerServiceStub(wire.channel)
        self._wire = wire

    async def create(
        self,
        name: str,
        addresses: Sequence[str],
        *,
        tls: Mapping[str, str] | None = None,
        credential: str = "",
        plaintext: bool = False,
    ) -> models.RewardServer:
        """Registers a server, which need not be up; `addresses` are its replicas, host:port each.

        `tls` (None: plain text) may hold `ca`, `client_certificate` and `server_name`, and {} is TLS by the
        machine's own CAs. CA, certificate and `credential` (a token) are names: gateway, trainers and command
        line have the files in their own secrets folders. `plaintext` lets the token out in plain text.
        """
        server = _convert.carry(
            pb.RewardServer,
            {"name": name, "addresses": addresses, "credential": credential, "plaintext": plaintext},
        )
        if tls is not None:
            named = parse_model(TlsAccess, dict(tls), "tls").model_dump(exclude_none=True)
            server.tls.CopyFrom(_convert.carry(pb.RewardServerTls, named))
        request = pb.CreateRewardServerRequest(reward_server=server)
        return _convert.reward_server_from_proto(
            await self._wire.call(self._stub.CreateRewardServer, request)
        )

    async def get(self, server_id: str) -> models.RewardServer:
        """A server by id or name, with its rewards and replicas as it answers now."""
        return _convert.reward_server_from_proto(
            await self._wire.call(
                self._stub.GetRewardServer, _convert.carry(pb.GetRewardServerRequest, {"id": server_id})
            )
        )

    async def list(self) -> list[models.RewardServer]:
        """All servers by name, with their rewards and replicas as they answer now."""
        response = await self._wire.call(self._stub.ListRewardServers, pb.ListRewardServersRequest())
        return [_convert.reward_server_from_proto(server) for server in response.reward_servers]

    async def delete(self, server_id: str) -> None:
        """Forgets a server."""
        await self._wire.call_once(
            self._stub.DeleteRewardServer, _convert.carry(pb.DeleteRewardServerRequest, {"id": server_id})
        )


class RewardServers(Blocking[AsyncRewardServers]):
    """`client.reward_servers`."""

    create = blocking(AsyncRewardServers.create)
    get = blocking(AsyncRewardServers.get)
    list = blocking(AsyncRewardServers.list)
    delete = blocking(AsyncRewardServers.delete)
