"""Alerts of jobs: one row an episode."""

from __future__ import annotations

import json
from typing import Any

import aiosqlite

from gateway.jobs.job import JobAlert
from gateway.store._times import from_micros, to_micros


def alert_of(data: dict[str, Any]) -> JobAlert:
    """The alert that a row of the view `alert_objects` holds."""
    return JobAlert(**{**data, "raised_at": from_micros(data["raised_at"])})


class Alerts:
    """Reads and writes alerts on one connection."""

    def __init__(self, connection: aiosqlite.Connection) -> None:
        self._connection = connection

    async def going_on(self, job_key: int) -> list[JobAlert]:
        """The alerts of a job that are not over, oldest first."""
        rows = await self._connection.execute_fetchall(
            "SELECT alert FROM alert_objects WHERE job_key = ? AND ended_step IS NULL ORDER BY key",
            (job_key,),
        )
        return [alert_of(json.loads(row[0])) for row in rows]

    async def note(self, job_key: int, alert: JobAlert) -> None:
        """Adds an alert, or makes the one of its kind and subject that goes on what it has come to."""
        what = (alert.severity, alert.message, json.dumps(dict(alert.evidence)), alert.step)
        cursor = await self._connection.execute(
            "UPDATE alerts SET severity = ?, message = ?, evidence = ?, step = ? "
            "WHERE job_key = ? AND kind = ? AND subject = ? AND ended_step IS NULL",
            (*what, job_key, alert.kind, alert.subject),
        )
        was_there = cursor.rowcount > 0
        await cursor.close()
        if not was_there:
            await self._connection.execute(
                "INSERT INTO alerts (severity, message, evidence, step, job_key, kind, subject, raised_at) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (*what, job_key, alert.kind, alert.subject, to_micros(alert.raised_at)),
            )

    async def end(self, job_key: int, kind: str, subject: str, step: int) -> None:
        """Notes that the series of a job no longer show it after `step`."""
        await self._connection.execute(
            "UPDATE alerts SET ended_step = ? WHERE job_key = ? AND kind = ? AND subject = ? "
            "AND ended_step IS NULL",
            (step, job_key, kind, subject),
        )
