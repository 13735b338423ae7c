"""Keeps watching one registered server: every replica is asked again and again, by one task."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import structlog

from gateway.jobs.ports import ServerDescription
from gateway.rewards.replicas import ReplicaCheck, ReplicaHealth, ReplicaProbe, ReplicaState
from gateway.store.reward_servers import RegisteredRewardServer
from plaudit.rpc import Credentials
from plaudit.service import Secrets

log = structlog.get_logger(__name__)

_LONGEST_PAUSE_SECONDS: Final = 60.0
_VERSIONS_SHOWN: Final = 4


@dataclass(frozen=True, slots=True)
class ServerCheck:
    """What one round over the replicas of a server found, in the order of its addresses."""

    replicas: tuple[ReplicaCheck, ...]

    @property
    def health(self) -> tuple[ReplicaHealth, ...]:
        """Every replica as it was found."""
        return tuple(replica.health for replica in self.replicas)

    @property
    def description(self) -> ServerDescription:
        """What the server says of itself: by a replica that serves, else by one that answers, else why none
        did.
        """
        described = [replica for replica in self.replicas if replica.description is not None]
        serving = [r for r in described if r.health.state is ReplicaState.SERVING]
        for replica in (*serving, *described):
            assert replica.description is not None
            if replica.description.reachable:
                warnings = (*replica.description.warnings, *self._differences(described))
                return replace(replica.description, warnings=warnings)
        reasons = "; ".join(dict.fromkeys(replica.health.reason for replica in self.replicas))
        if described and described[0].description is not None:
            return replace(described[0].description, unreachable_reason=reasons)
        return ServerDescription(reachable=False, unreachable_reason=reasons)

    def _differences(self, described: Sequence[ReplicaCheck]) -> list[str]:
        if len({(r.seen.version, *sorted(r.seen.rewards.items())) for r in described if r.seen}) < 2:
            return []
        each = [f"{r.health.address} is {r.health.server_version}" for r in described[:_VERSIONS_SHOWN]]
        more = ", …" if len(described) > _VERSIONS_SHOWN else ""
        return [f"its replicas describe themselves differently: {', '.join(each)}{more}"]


class ServerWatch:
    """What is known of one server. Made and used in one event loop."""

    def __init__(
        self,
        server: RegisteredRewardServer,
        secrets: Secrets,
        *,
        slots: asyncio.Semaphore,
        pause_seconds: float,
        on_check: Callable[[RegisteredRewardServer, ServerCheck], Awaitable[None]],
    ) -> None:
        """`slots` bounds how many servers are asked at once, over all watches; `pause_seconds` lies between
        two rounds, and grows where no replica serves. `on_check` is given what each round found.
        """
        self.server = server
        load = partial(Credentials.load, server.access, secrets)
        self._probes = [ReplicaProbe(address, load) for address in server.addresses]
        self._slots = slots
        self._pause_seconds = pause_seconds
        self._on_check = on_check
        self._last: ServerCheck | None = None
        self._checking: asyncio.Task[ServerCheck] | None = None

    async def check(self) -> ServerCheck:
        """Asks every replica now. Who asks while a round is under way gets what that finds."""
        if self._checking is None or self._checking.done():
            self._checking = asyncio.create_task(self._check())
        return await asyncio.shield(self._checking)

    async def probe(self) -> ReplicaProbe | None:
        """A replica that served when it was last checked; None where there was none."""
        last = self._last or await self.check()
        pairs = zip(self._probes, last.health, strict=True)
        return next((probe for probe, health in pairs if health.state is ReplicaState.SERVING), None)

    async def run(self) -> None:
        """Checks until it is cancelled."""
        rounds_without = 0
        while True:
            found = await self.check()
            served = any(health.state is ReplicaState.SERVING for health in found.health)
            rounds_without = 0 if served else rounds_without + 1
            pause = min(_LONGEST_PAUSE_SECONDS, self._pause_seconds * 2 ** min(rounds_without, 5))
            # Spread, so that servers that were registered together are not asked together for ever.
            await asyncio.sleep(pause * random.uniform(0.75, 1.25))

    async def close(self) -> None:
        """Ends a round that is under way."""
        if self._checking is not None:
            self._checking.cancel()
            await asyncio.wait({self._checking})

    async def _check(self) -> ServerCheck:
        async with self._slots:
            found = ServerCheck(tuple(await asyncio.gather(*(probe.check() for probe in self._probes))))
        self._last = found
        try:
            await self._on_check(self.server, found)
        except Exception:
            # A full disk or a bug is no reason to keep what was found from those who asked.
            log.exception("what a reward server says could not be kept", server=self.server.name)
        return found
