"""Keeps what jobs wait for as it is now, without a flood of events."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final

from gateway.jobs import lifecycle
from gateway.store import Store
from plaudit.types.statuses import EVALUATING, JobStatus

_NUMBER: Final = re.compile(r"\d+(\.\d+)?")


class StatusDetails:
    """Writes `status_detail` of jobs whose status does not change.

    Watchers are told of another text at once, and of one in which only numbers differ (seconds that go by)
    every `repeat_seconds`, but not of how far an evaluation is; who asks for the job always gets the newest.
    """

    def __init__(self, store: Store, *, repeat_seconds: float = 10.0) -> None:
        self._store = store
        self._repeat_seconds = repeat_seconds
        self._told_at: dict[int, float] = {}

    async def set(self, job_key: int, run_id: str | None, detail: str) -> None:
        """Sets the detail of the job where it still goes by the run `run_id`, or, where None, is queued."""
        async with self._store.transaction() as session:
            before = await session.jobs.find_by_key(job_key)
            if before is None or before.run_id != run_id or before.job.status_detail == detail:
                return
            if run_id is None and before.job.status is not JobStatus.QUEUED:
                return
            time = datetime.now(UTC)
            after = replace(before, job=replace(before.job, status_detail=detail, updated_at=time))
            is_new = _words(detail) != _words(before.job.status_detail)
            if is_new or (self._is_due(job_key) and not detail.startswith(EVALUATING)):
                await lifecycle.save(session, before, after, time)
                self._told_at[job_key] = asyncio.get_running_loop().time()
            else:
                await session.jobs.save(after)

    def _is_due(self, job_key: int) -> bool:
        oldest = asyncio.get_running_loop().time() - self._repeat_seconds
        self._told_at = {key: at for key, at in self._told_at.items() if at > oldest}
        return job_key not in self._told_at


def _words(text: str) -> str:
    return _NUMBER.sub("#", text)
