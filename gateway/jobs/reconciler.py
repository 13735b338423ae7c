"""Runs what keeps jobs moving: a link to every trainer, the leases, and the scheduler."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from pathlib import Path

import structlog

from gateway.jobs.details import StatusDetails
from gateway.jobs.leases import Leases
from gateway.jobs.scheduler import Scheduler, TrainerPlaces
from gateway.jobs.trainer_access import TrainerDoor, open_door
from gateway.jobs.trainer_link import TrainerLink
from gateway.store import Store

log = structlog.get_logger(__name__)


class Reconciler:
    """Makes the world follow the store, and the store the world, until it is cancelled."""

    def __init__(
        self,
        store: Store,
        artifact_root: Path,
        trainers: Sequence[str],
        *,
        poll_seconds: float = 1.0,
        overdue_seconds: float = 2.0,
        lost_seconds: float = 600.0,
        door: TrainerDoor = open_door,
    ) -> None:
        """`trainers` are addresses; every `poll_seconds` each is asked what it runs. `door` tells what it
        takes to be let in by each. See Leases for the others.
        """
        details = StatusDetails(store)
        self._leases = Leases(
            store,
            details,
            overdue_seconds=overdue_seconds,
            lost_seconds=lost_seconds,
        )
        self._scheduler = Scheduler(store, details, artifact_root)
        self._poll_seconds = poll_seconds
        self._nudge = asyncio.Event()
        links: dict[str, TrainerLink] = {}
        self._links = [
            TrainerLink(
                address,
                store,
                artifact_root,
                self._leases,
                details,
                links,
                poll_seconds=poll_seconds,
                on_change=self._nudge.set,
                door=door,
            )
            for address in trainers
        ]

    def wake(self) -> None:
        """A job was created or asked something: act now rather than at the next poll."""
        self._nudge.set()
        for link in self._links:
            link.wake()

    def trainers(self) -> list[TrainerPlaces]:
        """Every trainer of the settings, as it answered when it was last asked."""
        return [link.places for link in self._links]

    async def run(self) -> None:
        """Works until it is cancelled. Runs on trainers go on."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._leases.run())
            for link in self._links:
                group.create_task(link.run())
            while True:
                self._nudge.clear()
                try:
                    await self._leases.check()
                    assigned = await self._scheduler.assign(self.trainers())
                except Exception:
                    # A full disk or a bug must not end the links, which ingest what trainers report.
                    log.exception("unexpected error while scheduling")
                    assigned = set()
                for link in self._links:
                    if link.places.trainer_id in assigned:
                        link.wake()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._poll_seconds):
                        await self._nudge.wait()
