"""Jobs in the store."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any, Final

import aiosqlite

from gateway.jobs.job import Job, JobError
from gateway.store._times import from_micros, optional_from_micros, optional_to_micros, to_micros
from plaudit.types.jobs import accepted_job_spec
from plaudit.types.statuses import JobStatus


@dataclass(frozen=True, slots=True)
class JobRecord:
    """A job and what only the gateway's own machinery needs of it.

    `run_id` is the one run whose journal moves the job, None where there is none; `deaths` counts the runs
    that died since the newest checkpoint; `dataset_id` is what the spec's dataset stood for when the job
    was created.
    """

    key: int
    job: Job
    dataset_id: str
    run_id: str | None = None
    deaths: int = 0


_SELECT: Final = (
    "SELECT key, id, spec, dataset_id, status, status_detail, error_code, error_message, current_step, "
    "total_steps, attempt, run_id, deaths, metrics, latest_checkpoint_id, created_at, updated_at, "
    "started_at, finished_at FROM jobs"
)
_INSERT: Final = (
    "INSERT INTO jobs (status, status_detail, error_code, error_message, current_step, total_steps, attempt, "
    "run_id, deaths, metrics, latest_checkpoint_id, updated_at, started_at, finished_at, id, spec, "
    "dataset_id, created_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_UPDATE: Final = (
    "UPDATE jobs SET status = ?, status_detail = ?, error_code = ?, error_message = ?, current_step = ?, "
    "total_steps = ?, attempt = ?, run_id = ?, deaths = ?, metrics = ?, latest_checkpoint_id = ?, "
    "updated_at = ?, started_at = ?, finished_at = ? WHERE key = ?"
)
_OVER: Final = (JobStatus.COMPLETED, JobStatus.FAILED, JobStatus.CANCELLED)


class Jobs:
    """Reads and writes jobs on one connection."""

    def __init__(self, connection: aiosqlite.Connection) -> None:
        self._connection = connection

    async def find(self, job_id: str) -> JobRecord | None:
        """The job with this id, or None."""
        return await self._first(f"{_SELECT} WHERE id = ?", (job_id,))

    async def find_by_key(self, key: int) -> JobRecord | None:
        """The job with this key, or None."""
        return await self._first(f"{_SELECT} WHERE key = ?", (key,))

    async def page(
        self, *, limit: int, before_key: int | None, statuses: Collection[JobStatus]
    ) -> list[JobRecord]:
        """At most `limit` jobs, newest first, made before the one with `before_key`. No `statuses`: all."""
        marks = ", ".join("?" * len(statuses))
        return await self._all(
            f"{_SELECT} WHERE (? IS NULL OR key < ?)"
            f"{f' AND status IN ({marks})' if statuses else ''} ORDER BY key DESC LIMIT ?",
            (before_key, before_key, *statuses, limit),
        )

    async def with_status(self, *statuses: JobStatus) -> list[JobRecord]:
        """Every job with one of these statuses, oldest first."""
        marks = ", ".join("?" * len(statuses))
        return await self._all(f"{_SELECT} WHERE status IN ({marks}) ORDER BY key", statuses)

    async def insert(self, job: Job, *, dataset_id: str, reward_server_ids: Iterable[str]) -> JobRecord:
        """Adds a job."""
        record = JobRecord(key=0, job=job, dataset_id=dataset_id)
        cursor = await self._connection.execute(
            _INSERT,
            (
                *_changing(record),
                job.id,
                job.spec.model_dump_json(),
                dataset_id,
                to_micros(job.created_at),
            ),
        )
        assert cursor.lastrowid is not None
        key = cursor.lastrowid
        await cursor.close()
        await self._connection.executemany(
            "INSERT INTO job_reward_servers VALUES (?, ?, ?)",
            [(key, position, server_id) for position, server_id in enumerate(reward_server_ids)],
        )
        return JobRecord(key=key, job=job, dataset_id=dataset_id)

    async def save(self, record: JobRecord) -> None:
        """Writes everything of a job that can change."""
        await self._connection.execute(_UPDATE, (*_changing(record), record.key))

    async def reward_server_ids(self, key: int) -> list[str]:
        """Ids of the reward servers of a job, in the order of its rewards."""
        rows = await self._connection.execute_fetchall(
            "SELECT server_id FROM job_reward_servers WHERE job_key = ? ORDER BY position", (key,)
        )
        return [row[0] for row in rows]

    async def needing_dataset(self, dataset_id: str) -> list[str]:
        """Ids of the jobs that are not over (completed, failed or cancelled) and learn on this dataset."""
        rows = await self._connection.execute_fetchall(
            "SELECT id FROM jobs WHERE dataset_id = ? AND status NOT IN (?, ?, ?) ORDER BY key",
            (dataset_id, *_OVER),
        )
        return [row[0] for row in rows]

    async def needing_reward_server(self, server_id: str) -> list[str]:
        """Ids of the jobs that are not over (completed, failed or cancelled) and have a reward on this
        server.
        """
        rows = await self._connection.execute_fetchall(
            "SELECT id FROM jobs WHERE status NOT IN (?, ?, ?) AND key IN "
            "(SELECT job_key FROM job_reward_servers WHERE server_id = ?) ORDER BY key",
            (*_OVER, server_id),
        )
        return [row[0] for row in rows]

    async def _first(self, sql: str, parameters: Iterable[Any]) -> JobRecord | None:
        records = await self._all(sql, parameters)
        return records[0] if records else None

    async def _all(self, sql: str, parameters: Iterable[Any]) -> list[JobRecord]:
        rows = await self._connection.execute_fetchall(sql, tuple(parameters))
        return [_record(row) for row in rows]


def _changing(record: JobRecord) -> tuple[object, ...]:
    """What can change, in the order of _UPDATE."""
    job = record.job
    return (
        job.status,
        job.status_detail,
        job.error.code if job.error else None,
        job.error.message if job.error else None,
        job.current_step,
        job.total_steps,
        job.attempt,
        record.run_id,
        record.deaths,
        json.dumps(dict(job.metrics)),
        job.latest_checkpoint_id,
        to_micros(job.updated_at),
        optional_to_micros(job.started_at),
        optional_to_micros(job.finished_at),
    )


def _record(row: Any) -> JobRecord:
    (
        key, job_id, spec, dataset_id, status, detail, error_code, error_message, current_step,
        total_steps, attempt, run_id, deaths, metrics, latest_checkpoint_id, created_at, updated_at,
        started_at, finished_at,
    ) = row  # fmt: skip
    job = Job(
        id=job_id,
        spec=accepted_job_spec(json.loads(spec)),
        status=JobStatus(status),
        status_detail=detail,
        error=JobError(error_code, error_message) if error_code is not None else None,
        current_step=current_step,
        total_steps=total_steps,
        attempt=attempt,
        metrics=json.loads(metrics),
        created_at=from_micros(created_at),
        updated_at=from_micros(updated_at),
        started_at=optional_from_micros(started_at),
        finished_at=optional_from_micros(finished_at),
        latest_checkpoint_id=latest_checkpoint_id,
    )
    return JobRecord(key=key, job=job, dataset_id=dataset_id, run_id=run_id, deaths=deaths)
