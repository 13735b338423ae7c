"""Edges with tokens, and how to call them as somebody."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import grpc
import httpx2
from edges import Edges, open_edges

from gateway.access import AccessLimits, AccessPolicy
from plaudit.types.roles import Role

GENEROUS = AccessLimits(
    requests_per_second=10_000,
    request_burst=100_000,
    anonymous_requests_per_second=10_000,
    refusals_per_minute=100_000,
)
"""What tests of something else do not run into."""


@dataclass(frozen=True)
class Guarded:
    """Edges that ask for tokens, and the secret of one for each role, which is its name too."""

    edges: Edges
    secrets: dict[Role, str]

    def header(self, who: Role | str | None) -> dict[str, str]:
        """The HTTP header of a role's token, of another secret, or of nobody."""
        secret = self.secrets[who] if isinstance(who, Role) else who
        return {} if secret is None else {"Authorization": f"Bearer {secret}"}

    def metadata(self, who: Role | str | None) -> tuple[tuple[str, str], ...]:
        """The same for gRPC."""
        return tuple((name.lower(), value) for name, value in self.header(who).items())

    async def request(
        self, method: str, path: str, who: Role | str | None, **more: object
    ) -> httpx2.Response:
        """A request as somebody."""
        return await self.edges.http.request(method, path, headers=self.header(who), **more)


@asynccontextmanager
async def open_guarded(folder: Path, limits: AccessLimits = GENEROUS) -> AsyncIterator[Guarded]:
    """Edges that ask for tokens, until the context ends."""
    policy = AccessPolicy(require_tokens=True, limits=limits)
    async with open_edges(folder, policy=policy, bookmark_seconds=0.05) as edges:
        tokens = edges.gateway.access.tokens
        secrets = {role: (await tokens.create(role.value, role))[1] for role in Role}
        yield Guarded(edges, secrets)


async def outcome_of(
    call: grpc.aio.UnaryUnaryCall | grpc.aio.UnaryStreamCall | grpc.aio.StreamStreamCall,
) -> grpc.StatusCode:
    """The status that a call ends with; a stream that delivers something is OK, and is ended."""
    try:
        if isinstance(call, grpc.aio.UnaryStreamCall | grpc.aio.StreamStreamCall):
            await call.read()
            if not call.done():
                call.cancel()
                return grpc.StatusCode.OK
            return await call.code()
        await call
    except grpc.aio.AioRpcError as error:
        return error.code()
    return grpc.StatusCode.OK
