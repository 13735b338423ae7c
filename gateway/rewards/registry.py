"""The reward servers that jobs may name."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final

from gateway.jobs.ports import ServerDescription
from gateway.rewards.descriptions import describe
from gateway.store import Session, Store
from gateway.store.ids import new_id
from gateway.store.reward_servers import RegisteredRewardServer
from plaudit.errors import (
    AlreadyExistsError,
    FailedPreconditionError,
    FieldViolation,
    InvalidArgumentError,
    NotFoundError,
    ResourceExhaustedError,
)
from plaudit.types.addresses import check_address
from plaudit.types.validation import shown

MAX_ADDRESSES: Final = 32
"""Most replicas of one server."""
MAX_SERVERS: Final = 256

_ASKED_AT_ONCE: Final = 64
_NAME: Final = re.compile(r"[a-z][a-z0-9_-]{0,62}")


@dataclass(frozen=True, slots=True)
class LiveRewardServer:
    """A registered server, and what it answers now."""

    server: RegisteredRewardServer
    description: ServerDescription


class RewardServerRegistry:
    """Registers, shows and forgets reward servers; for jobs, a `gateway.jobs.ports.RewardServerCatalog`."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._asking = asyncio.Semaphore(_ASKED_AT_ONCE)

    async def start(self, configured: Mapping[str, Sequence[str]]) -> None:
        """Registers the servers that the settings name, with the addresses that they have there.

        A server that they no longer name stays, and can be deleted. Raises InvalidArgumentError, everything
        that is wrong at once.
        """
        violations = [
            FieldViolation(f"reward_servers.{name}.{violation.field}", violation.message)
            for name, addresses in configured.items()
            for violation in _violations(name, addresses)
        ]
        if violations:
            raise InvalidArgumentError(violations)
        async with self._store.transaction() as session:
            for server in await session.reward_servers.list():
                if server.configured and server.name not in configured:
                    await session.reward_servers.update(replace(server, configured=False))
            for name, addresses in configured.items():
                known = await session.reward_servers.find(name)
                if known is None:
                    await session.reward_servers.insert(_new(name, addresses, configured=True))
                else:
                    await session.reward_servers.update(
                        replace(known, addresses=tuple(addresses), configured=True)
                    )

    async def find(self, id_or_name: str) -> RegisteredRewardServer | None:
        """The server with this id, else the one with this name, else None."""
        async with self._store.snapshot() as session:
            return await session.reward_servers.find(id_or_name)

    async def describe(self, server: RegisteredRewardServer) -> ServerDescription:
        """Asks the server what it offers. Takes a bounded time, and never raises for one that is away."""
        async with self._asking:
            return await describe(server.addresses)

    async def get(self, id_or_name: str) -> LiveRewardServer:
        """The server, as it answers now. NotFoundError."""
        async with self._store.snapshot() as session:
            server = await _required(session, id_or_name)
        return LiveRewardServer(server, await self.describe(server))

    async def list(self) -> list[LiveRewardServer]:
        """Every server by name, as each answers now; they are asked at the same time."""
        async with self._store.snapshot() as session:
            servers = await session.reward_servers.list()
        descriptions = await asyncio.gather(*(self.describe(server) for server in servers))
        return [LiveRewardServer(*pair) for pair in zip(servers, descriptions, strict=True)]

    async def create(self, name: str, addresses: Sequence[str]) -> LiveRewardServer:
        """Registers a server, which need not be up. The same name with the same addresses returns the same
        server; with others it raises AlreadyExistsError (NAME_TAKEN). InvalidArgumentError names all that is
        wrong.
        """
        violations = _violations(name, addresses)
        if violations:
            raise InvalidArgumentError(violations)
        async with self._store.transaction() as session:
            server = await session.reward_servers.find(name)
            if server is None:
                if len(await session.reward_servers.list()) >= MAX_SERVERS:
                    raise ResourceExhaustedError(
                        f"{MAX_SERVERS} reward servers are registered, which is the most; delete some",
                        reason="TOO_MANY_REWARD_SERVERS",
                    )
                server = _new(name, addresses, configured=False)
                await session.reward_servers.insert(server)
            elif set(server.addresses) != set(addresses):
                raise AlreadyExistsError(
                    f"the name {name} belongs to a reward server at {', '.join(server.addresses)}; choose "
                    "another name, or delete that one"
                )
        return LiveRewardServer(server, await self.describe(server))

    async def delete(self, id_or_name: str) -> None:
        """Forgets a server. FailedPreconditionError (IN_USE) while a job that is not over needs it, or where
        the settings name it.
        """
        async with self._store.transaction() as session:
            server = await _required(session, id_or_name)
            if server.configured:
                raise FailedPreconditionError(
                    f"reward server {server.name} stands in the gateway's settings; take it out of there",
                    reason="IN_USE",
                )
            jobs = await session.jobs.needing_reward_server(server.id)
            if jobs:
                raise FailedPreconditionError(
                    f"reward server {server.name} is needed by {', '.join(jobs[:3])}; cancel what needs it, "
                    "or wait",
                    reason="IN_USE",
                )
            await session.reward_servers.delete(server.id)


def _violations(name: str, addresses: Sequence[str]) -> list[FieldViolation]:
    violations = []
    if not _NAME.fullmatch(name):
        violations.append(
            FieldViolation(
                "name",
                f"{shown(name)} is refused: a name has 1 to 63 small letters, digits, underscores and "
                'dashes, and starts with a letter; for example "math-rewards"',
            )
        )
    if not 1 <= len(addresses) <= MAX_ADDRESSES:
        violations.append(
            FieldViolation(
                "addresses",
                f"holds {len(addresses)} addresses; 1 to {MAX_ADDRESSES} are needed, "
                'for example ["127.0.0.1:50061"]',
            )
        )
    for index, address in enumerate(addresses[:MAX_ADDRESSES]):
        if address in addresses[:index]:
            violations.append(
                FieldViolation(f"addresses[{index}]", f"{shown(address)} stands there twice; name it once")
            )
        try:
            check_address(address)
        except ValueError as error:
            violations.append(FieldViolation(f"addresses[{index}]", f"{shown(address)}: {error}"))
    return violations


async def _required(session: Session, id_or_name: str) -> RegisteredRewardServer:
    server = await session.reward_servers.find(id_or_name)
    if server is None:
        raise NotFoundError(
            f"there is no reward server {shown(id_or_name)}; list the reward servers to see their names"
        )
    return server


def _new(name: str, addresses: Sequence[str], *, configured: bool) -> RegisteredRewardServer:
    return RegisteredRewardServer(new_id("rs"), name, tuple(addresses), configured, datetime.now(UTC))
