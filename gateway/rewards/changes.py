"""Tells jobs that a reward server which they use is not what it was: its scores may mean something else."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

import structlog

from gateway.events import LogLine
from gateway.rewards.watch import ServerCheck
from gateway.store import Session, Store
from gateway.store.reward_servers import RegisteredRewardServer, SeenReplica

log = structlog.get_logger(__name__)

TOLD_EVERY_SECONDS: Final = 60.0
"""Least time between two events of a server: one that changes at every question fills nobody's log."""

_NAMES_SHOWN: Final = 5


class ChangeNotes:
    """Compares what replicas say of themselves with what they said before, across restarts of the gateway."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._seen: dict[str, Mapping[str, SeenReplica]] = {}
        self._told_at: dict[str, float] = {}

    async def note(self, server: RegisteredRewardServer, found: ServerCheck) -> None:
        """Keeps what `found` says; where it differs from before, each job that uses the server is told."""
        seen = await self._seen_before(server)
        now = {r.health.address: r.seen for r in found.replicas if r.seen is not None}
        changed = {address: new for address, new in now.items() if seen.get(address) != new}
        told = [_changes(address, seen[address], new) for address, new in changed.items() if address in seen]
        if not changed or (told and not self._is_due(server.id)):
            return
        async with self._store.transaction() as session:
            if await session.reward_servers.find(server.id) is None:
                return
            for address, new in changed.items():
                await session.reward_servers.note_replica(server.id, address, new)
            if told:
                await _tell_jobs(session, server, "; ".join(told), changed, seen)
        self._seen[server.id] = {**seen, **changed}

    def forget(self, server_id: str) -> None:
        """Drops what is kept in memory of a server that is forgotten."""
        self._seen.pop(server_id, None)
        self._told_at.pop(server_id, None)

    async def _seen_before(self, server: RegisteredRewardServer) -> Mapping[str, SeenReplica]:
        if server.id not in self._seen:
            async with self._store.snapshot() as session:
                self._seen[server.id] = await session.reward_servers.seen_replicas(server.id)
        return self._seen[server.id]

    def _is_due(self, server_id: str) -> bool:
        now = asyncio.get_running_loop().time()
        if now - self._told_at.get(server_id, -TOLD_EVERY_SECONDS) < TOLD_EVERY_SECONDS:
            return False
        self._told_at[server_id] = now
        return True


async def _tell_jobs(
    session: Session,
    server: RegisteredRewardServer,
    changes: str,
    changed: Mapping[str, SeenReplica],
    before: Mapping[str, SeenReplica],
) -> None:
    log.warning("reward server changed", server=server.name, changes=changes)
    fields = {
        "reward_server": server.name,
        "replicas": {
            address: {"before": before[address].version, "now": new.version}
            for address, new in changed.items()
            if address in before
        },
    }
    line = LogLine(
        "warning",
        f"reward server {server.name} changed: {changes}; scores from here on may mean something else",
        json.dumps(fields),
    )
    now = datetime.now(UTC)
    for job_id in await session.jobs.needing_reward_server(server.id):
        record = await session.jobs.find(job_id)
        # One that has not begun has no scores that could differ.
        if record is not None and record.job.attempt > 0:
            await session.events.append(record.key, job_id, line, now)


def _changes(address: str, before: SeenReplica, now: SeenReplica) -> str:
    parts = []
    if before.version != now.version:
        parts.append(f"is {now.version or 'without a version'}, was {before.version or 'without one'}")
    gone = [name for name in before.rewards if name not in now.rewards]
    new = [name for name in now.rewards if name not in before.rewards]
    other = [name for name, digest in now.rewards.items() if before.rewards.get(name, digest) != digest]
    for words, names in (("no longer offers", gone), ("now offers", new), ("describes otherwise", other)):
        if names:
            more = ", …" if len(names) > _NAMES_SHOWN else ""
            parts.append(f"{words} {', '.join(names[:_NAMES_SHOWN])}{more}")
    return f"{address} {', '.join(parts)}"
