"""Signs of life of the clients that own their jobs: where they stay away, the job is cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final

import structlog

from gateway.jobs import lifecycle
from gateway.jobs.job import JobError
from gateway.jobs.transitions import JobEvent, status_after
from gateway.store import Store
from gateway.store.jobs import JobRecord
from plaudit.types.statuses import ErrorCode

log = structlog.get_logger(__name__)

DEFAULT_TIMEOUT_SECONDS: Final = 300.0

_CHECKS_PER_TIMEOUT: Final = 10
_LONGEST_PAUSE_SECONDS: Final = 5.0


class HeartbeatWatch:
    """Cancels jobs that require heartbeats, had one, and have had none for `timeout_seconds`.

    Time in which this gateway did not listen does not count.
    """

    def __init__(
        self,
        store: Store,
        *,
        on_change: Callable[[], None],
        timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS,
    ) -> None:
        """`on_change` is called after jobs were cancelled."""
        self._store = store
        self._on_change = on_change
        self._timeout = timedelta(seconds=timeout_seconds)
        self._listens_since = datetime.now(UTC)

    async def run(self) -> None:
        """Watches until it is cancelled."""
        pause = min(self._timeout.total_seconds() / _CHECKS_PER_TIMEOUT, _LONGEST_PAUSE_SECONDS)
        while True:
            await asyncio.sleep(pause)
            try:
                await self.check(datetime.now(UTC))
            except Exception:
                # A full disk or a bug: the next check comes soon.
                log.exception("unexpected error while looking for heartbeats")

    async def check(self, now: datetime) -> None:
        """Cancels what is due at `now`."""
        if now - self._listens_since < self._timeout:
            return
        since = now - self._timeout
        async with self._store.snapshot() as session:
            if not await session.jobs.without_heartbeat(since=since):
                return
        async with self._store.transaction() as session:
            for record in await session.jobs.without_heartbeat(since=since):
                await lifecycle.save(session, record, self._stopped(record, now), now)
        self._on_change()

    def _stopped(self, record: JobRecord, now: datetime) -> JobRecord:
        status = status_after(record.job.status, JobEvent.CANCEL)
        assert status is not None
        seconds = self._timeout.total_seconds()
        cause = JobError(
            ErrorCode.HEARTBEAT_TIMEOUT,
            f"its client sent heartbeats, and then none for {seconds:g} s; create the job with "
            "requires_heartbeat false where it is to go on without its client",
        )
        log.info("a job's client is gone", job_id=record.job.id)
        return lifecycle.moved(record, status, now, error=cause)
