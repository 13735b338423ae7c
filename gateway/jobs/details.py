"""Keeps what jobs wait for as it is now, without a flood of events."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final

from gateway.jobs import lifecycle
from gateway.store import Store
from plaudit.types.statuses import JobStatus

_NUMBER: Final = re.compile(r"\d+(\.\d+)?")


@dataclass(frozen=True, slots=True)
class _Told:
    text: str
    at: float


class StatusDetails:
    """Writes `status_detail` of jobs whose status does not change.

    Watchers are told of another text at once, and of one in which only numbers differ (seconds that go by)
    every `repeat_seconds`; who asks for the job always gets the newest.
    """

    def __init__(self, store: Store, *, repeat_seconds: float = 10.0) -> None:
        self._store = store
        self._repeat_seconds = repeat_seconds
        self._told: dict[int, _Told] = {}

    async def set(self, job_key: int, run_id: str | None, detail: str) -> None:
        """Sets the detail of the job where it still goes by the run `run_id`, or, where None, is queued."""
        now = asyncio.get_running_loop().time()
        async with self._store.transaction() as session:
            before = await session.jobs.find_by_key(job_key)
            if before is None or before.run_id != run_id or before.job.status_detail == detail:
                return
            if run_id is None and before.job.status is not JobStatus.QUEUED:
                return
            time = datetime.now(UTC)
            after = replace(before, job=replace(before.job, status_detail=detail, updated_at=time))
            told = self._told.get(job_key)
            news = told is None or _words(detail) != _words(told.text)
            if news or told is None or now - told.at >= self._repeat_seconds:
                await lifecycle.save(session, before, after, time)
                self._told[job_key] = _Told(detail, now)
            else:
                await session.jobs.save(after)
            if not detail:
                self._told.pop(job_key)


def _words(text: str) -> str:
    return _NUMBER.sub("#", text)
