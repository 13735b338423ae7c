"""Journals that cannot be taken in, told to people: the job would go on looking as if all were well."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

import structlog

from gateway.events import LogLine
from gateway.store import Store
from gateway.store.runs import RunRecord
from plaudit.errors import PlauditError

log = structlog.get_logger(__name__)

TOLD_AFTER: Final = 3
"""Failures in a row: fewer may be the store's, which was busy for a moment."""

_SHOWN_LENGTH: Final = 500


@dataclass(slots=True)
class _Trouble:
    since: datetime
    failures: int = 0
    why: str = ""


class IngestTroubles:
    """Of the runs of one trainer. What is told of a run is over with the first entries that are taken in."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._by_run: dict[str, _Trouble] = {}

    async def note(self, run: RunRecord, error: Exception) -> None:
        """Entries of a run could not be taken in. After some times it stands in the log of the job, too."""
        trouble = self._by_run.setdefault(run.id, _Trouble(datetime.now(UTC)))
        trouble.failures += 1
        told = error.message if isinstance(error, PlauditError) else f"{type(error).__name__}: {error}"
        trouble.why = told[:_SHOWN_LENGTH]
        if trouble.failures != TOLD_AFTER:
            return
        log.error(
            "a run's journal cannot be taken in", run_id=run.id, after=run.last_sequence, why=trouble.why
        )
        try:
            async with self._store.transaction() as session:
                record = await session.jobs.find_by_key(run.job_key)
                if record is not None and record.run_id == run.id:
                    line = LogLine("error", self._sentence(trouble))
                    await session.events.append(run.job_key, record.job.id, line, datetime.now(UTC))
        except sqlite3.Error as failure:
            log.error("nor can the job be told so", run_id=run.id, why=str(failure))

    def over(self, run_id: str) -> None:
        """Entries were taken in, or the run is gone."""
        self._by_run.pop(run_id, None)

    def detail(self, run_id: str) -> str:
        """What a job's status says of it; "" where there is nothing to tell."""
        trouble = self._by_run.get(run_id)
        return "" if trouble is None or trouble.failures < TOLD_AFTER else self._sentence(trouble)

    def _sentence(self, trouble: _Trouble) -> str:
        return (
            f"what the run reports cannot be taken in since {trouble.since:%H:%M:%S} UTC ({trouble.why}); it "
            "goes on all the same, and it is tried again; the gateway's log says more"
        )
