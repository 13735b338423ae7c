"""`python -m plaudit.rpc.health HOST:PORT`: exits with 0 where a service serves, for health checks."""

from __future__ import annotations

import argparse
import asyncio
import sys
from typing import Final

import grpc.aio
from grpc_health.v1 import health_pb2, health_pb2_grpc

from plaudit.errors import PlauditError, UnavailableError
from plaudit.rpc import Credentials, Endpoint, error_from_rpc
from plaudit.service import default_secrets
from plaudit.types.access import ServerAccess, TlsAccess
from plaudit.types.addresses import is_loopback
from plaudit.types.validation import parse_model

_SECONDS: Final = 5.0
_SERVING: Final = health_pb2.HealthCheckResponse.SERVING


async def check(address: str, credentials: Credentials, service: str = "") -> None:
    """Raises PlauditError where the service at `address` does not say within 5 s that it serves."""
    endpoint = Endpoint(f"dns:{address}", address, is_loopback(address))
    secured = credentials.open_channel(endpoint)
    async with secured.channel:
        stub = health_pb2_grpc.HealthStub(secured.channel)
        try:
            answer = await stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=_SECONDS)
        except grpc.aio.AioRpcError as failure:
            trouble = await credentials.tls_trouble(endpoint, _SECONDS)
            if trouble is not None:
                raise UnavailableError(f"{address}: {trouble}") from None
            raise error_from_rpc(failure, target=address) from None
    if answer.status != _SERVING:
        raise UnavailableError(f"{address} does not serve")


def main() -> int:
    """Reads options, asks, and returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m plaudit.rpc.health",
        description="Exits with 0 where a gRPC service serves, else with 1.",
    )
    parser.add_argument("address", metavar="HOST:PORT", help="where it listens")
    parser.add_argument("--service", default="", help="full name of the service; default: the whole server")
    parser.add_argument("--ca", metavar="NAME", help="speak TLS, by the CA {NAME}.ca.pem of the secrets")
    parser.add_argument("--client-certificate", metavar="NAME", help="show it {NAME}.cert.pem")
    parser.add_argument("--server-name", metavar="HOST", help="name in its certificate")
    options = vars(parser.parse_args())
    address: str = options.pop("address")
    service: str = options.pop("service")
    named = {name: value for name, value in options.items() if value is not None}
    try:
        tls = parse_model(TlsAccess, named, "tls") if named else None
        credentials = Credentials.load(ServerAccess(tls=tls), default_secrets())
        asyncio.run(check(address, credentials, service))
    except PlauditError as error:
        sys.stderr.write(f"error: {error.message}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
