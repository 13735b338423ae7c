"""Events in the store: numbered in the order of their commits, over all jobs."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict
from datetime import datetime
from typing import Any, Final

import aiosqlite

from gateway.events import (
    KINDS,
    Alert,
    AttemptStarted,
    CheckpointSaved,
    Event,
    LogLine,
    Payload,
    StatusChanged,
    StepMetrics,
    cursor_of,
)
from gateway.jobs.job import JobError
from gateway.store._times import from_micros, to_micros
from plaudit.types.statuses import JobStatus


def _status_changed(body: dict[str, Any]) -> StatusChanged:
    error = body["error"]
    return StatusChanged(JobStatus(body["status"]), body["detail"], JobError(**error) if error else None)


_FROM_BODY: Final[Mapping[str, Callable[[dict[str, Any]], Payload]]] = {
    "status_changed": _status_changed,
    "step_metrics": lambda body: StepMetrics(**body),
    "checkpoint_saved": lambda body: CheckpointSaved(**body),
    "alert": lambda body: Alert(**body),
    "log_line": lambda body: LogLine(**body),
    "attempt_started": lambda body: AttemptStarted(**body),
}


_SELECT: Final = (
    "SELECT number, kind, events.time, jobs.id, body FROM events JOIN jobs ON jobs.key = events.job_key"
)


class Events:
    """Reads and writes events on one connection."""

    def __init__(self, connection: aiosqlite.Connection, store_id: str) -> None:
        self._connection = connection
        self._store_id = store_id
        self.appended: list[Event] = []
        """What this session has added, in order; told to readers after the commit."""

    async def append(self, job_key: int, job_id: str, payload: Payload, time: datetime) -> None:
        """Adds an event at the end."""
        kind = KINDS[type(payload)]
        cursor = await self._connection.execute(
            "INSERT INTO events (job_key, kind, time, body) VALUES (?, ?, ?, ?)",
            (job_key, kind, to_micros(time), json.dumps(asdict(payload))),
        )
        number = cursor.lastrowid
        assert number is not None
        await cursor.close()
        self.appended.append(Event(cursor_of(self._store_id, number), number, time, job_id, payload))

    async def after(self, number: int, *, job_id: str | None, limit: int) -> list[Event]:
        """At most `limit` events beyond `number`, of one job or of all, in order."""
        of_job = "" if job_id is None else "job_key = (SELECT key FROM jobs WHERE id = ?) AND "
        rows = await self._connection.execute_fetchall(
            f"{_SELECT} WHERE {of_job}number > ? ORDER BY number LIMIT ?",
            (*(() if job_id is None else (job_id,)), number, limit),
        )
        return [self._event(row) for row in rows]

    async def newest_of(
        self, job_id: str, *, kinds: Collection[str], limit: int, before: int | None = None
    ) -> list[Event]:
        """At most `limit` of the newest events of these kinds of a job, newest first; those numbered below
        `before`, where it is given.
        """
        marks = ", ".join("?" * len(kinds))
        rows = await self._connection.execute_fetchall(
            f"{_SELECT} WHERE jobs.id = ? AND kind IN ({marks}) AND (? IS NULL OR number < ?) "
            "ORDER BY number DESC LIMIT ?",
            (job_id, *kinds, before, before, limit),
        )
        return [self._event(row) for row in rows]

    async def newest(self) -> int:
        """Number of the newest event ever stored; 0 where there was none."""
        rows = list(
            await self._connection.execute_fetchall("SELECT seq FROM sqlite_sequence WHERE name = 'events'")
        )
        return int(rows[0][0]) if rows else 0

    async def last_status(self, job_id: str) -> tuple[int, JobStatus] | None:
        """Number and status of the job's newest status event; None where the job is not known."""
        rows = list(
            await self._connection.execute_fetchall(
                "SELECT number, body FROM events WHERE kind = 'status_changed' AND job_key = "
                "(SELECT key FROM jobs WHERE id = ?) ORDER BY number DESC LIMIT 1",
                (job_id,),
            )
        )
        return (rows[0][0], _status_changed(json.loads(rows[0][1])).status) if rows else None

    def _event(self, row: Any) -> Event:
        number, kind, time, job_id, body = row
        return Event(
            cursor_of(self._store_id, number), number, from_micros(time), job_id, _payload(kind, body)
        )


def _payload(kind: str, body: str) -> Payload:
    return _FROM_BODY[kind](json.loads(body))
