"""A gRPC server with what every service of ours has: error mapping, health, reflection, limits, drain."""

from __future__ import annotations

from collections.abc import Sequence

import grpc
import grpc.aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from plaudit.errors import InvalidArgumentError, UnavailableError
from plaudit.rpc._interceptors import ErrorInterceptor
from plaudit.rpc._listening import ListenSecurity, ListenTls
from plaudit.rpc._options import SERVER_OPTIONS
from plaudit.types.validation import shown


class GrpcServer:
    """An asyncio gRPC server on one address.

    Register servicers on `server` before `start`. `service_names` are full names, for example
    "plaudit.reward.v1.RewardService"; health is told for each of them and for "".
    """

    def __init__(
        self,
        service_names: Sequence[str],
        *,
        interceptors: Sequence[grpc.aio.ServerInterceptor] = (),
        maximum_concurrent_rpcs: int | None = None,
        security: ListenTls | None = None,
    ) -> None:
        """`security` is plain text for everyone, on loopback only, where None. What `interceptors` raise is
        mapped as the errors of servicers are. Raises FailedPreconditionError where a file cannot be used.
        """
        self._security: ListenTls = security or ListenSecurity()
        self._credentials = self._security.server_credentials()
        self.server = grpc.aio.server(
            interceptors=[ErrorInterceptor(), *interceptors, *self._security.interceptors()],
            options=SERVER_OPTIONS,
            maximum_concurrent_rpcs=maximum_concurrent_rpcs,
        )
        self._service_names = tuple(service_names)
        self._health = health.aio.HealthServicer()
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self.server)
        reflection.enable_server_reflection(
            (*self._service_names, health.SERVICE_NAME, reflection.SERVICE_NAME), self.server
        )

    async def start(self, address: str) -> int:
        """Listens on `host:port` (port 0: any that is free), reports SERVING, and returns the port.

        Raises InvalidArgumentError where the server's security forbids the address.
        """
        refusal = self._security.refusal(address)
        if refusal is not None:
            raise InvalidArgumentError.of("address", f"{shown(address)} is refused: {refusal}")
        try:
            if self._credentials is None:
                port = self.server.add_insecure_port(address)
            else:
                port = self.server.add_secure_port(address, self._credentials)
        except RuntimeError:
            port = 0
        if port == 0:
            raise UnavailableError(
                f"cannot listen on {address}: the port is taken or the address is not this machine's; "
                "stop what listens there, or choose another port (0 takes a free one)",
                reason="ADDRESS_IN_USE",
            )
        await self.server.start()
        await self._report(health_pb2.HealthCheckResponse.SERVING)
        return port

    async def drain(self) -> None:
        """Reports NOT_SERVING, so that balancers and clients go elsewhere; calls are still served."""
        await self._health.enter_graceful_shutdown()

    async def stop(self, grace: float) -> None:
        """Ends after the open calls, or after `grace` seconds."""
        await self.drain()
        await self.server.stop(grace)

    async def _report(self, status: health_pb2.HealthCheckResponse.ServingStatus) -> None:
        for name in ("", *self._service_names):
            await self._health.set(name, status)
