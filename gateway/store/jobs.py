"""Jobs in the store."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any, Final

import aiosqlite

from gateway.jobs.job import Job, JobError, RequestedGpu
from gateway.store._times import from_micros, optional_from_micros, optional_to_micros, to_micros
from gateway.store.alerts import alert_of
from plaudit.types.jobs import accepted_job_spec
from plaudit.types.memory import MemoryEstimate
from plaudit.types.preflight import PreflightReport
from plaudit.types.statuses import JobStatus


@dataclass(frozen=True, slots=True)
class JobRecord:
    """A job and what only the gateway's own machinery needs of it.

    `run_id` is the one run whose journal moves the job, None where there is none; `deaths` counts the runs
    that died since the newest checkpoint; `dataset_id` is what the spec's dataset stood for when the job
    was created, and `eval_dataset_id` what that of its evaluations did, None where it has none. `stop_reason`
    is the alert for which the job pauses, or has paused; "" where it was none.
    """

    key: int
    job: Job
    dataset_id: str
    eval_dataset_id: str | None = None
    run_id: str | None = None
    deaths: int = 0
    stop_reason: str = ""


_SELECT: Final = (
    "SELECT key, id, spec, dataset_id, eval_dataset_id, status, status_detail, error_code, error_message, "
    "current_step, "
    "total_steps, attempt, run_id, deaths, metrics, latest_checkpoint_id, created_at, updated_at, "
    "started_at, finished_at, preflight, gpu_requested, requires_heartbeat, created_by, "
    "(SELECT models.id FROM models WHERE models.job_key = jobs.key AND is_final "
    "AND models.status = 'available'), stop_reason, memory, "
    "(SELECT json_group_array(json(alert)) FROM "
    "(SELECT alert FROM alert_objects WHERE job_key = jobs.key ORDER BY key DESC LIMIT 10)) FROM jobs"
)
_INSERT: Final = (
    "INSERT INTO jobs (status, status_detail, error_code, error_message, current_step, total_steps, attempt, "
    "run_id, deaths, metrics, latest_checkpoint_id, updated_at, started_at, finished_at, preflight, "
    "stop_reason, id, spec, dataset_id, eval_dataset_id, created_at, gpu_requested, requires_heartbeat, "
    "created_by) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_UPDATE: Final = (
    "UPDATE jobs SET status = ?, status_detail = ?, error_code = ?, error_message = ?, current_step = ?, "
    "total_steps = ?, attempt = ?, run_id = ?, deaths = ?, metrics = ?, latest_checkpoint_id = ?, "
    "updated_at = ?, started_at = ?, finished_at = ?, preflight = ?, stop_reason = ? WHERE key = ?"
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
        self,
        *,
        limit: int,
        before_key: int | None,
        statuses: Collection[JobStatus] = (),
        method: str | None = None,
    ) -> list[JobRecord]:
        """At most `limit` jobs, newest first, made before the one with `before_key`. No `statuses`: all."""
        of_status = f" AND status IN ({', '.join('?' * len(statuses))})" if statuses else ""
        return await self._all(
            f"{_SELECT} WHERE (? IS NULL OR key < ?){of_status} AND (? IS NULL OR spec ->> '$.method' = ?) "
            "ORDER BY key DESC LIMIT ?",
            (before_key, before_key, *statuses, method, method, limit),
        )

    async def with_status(self, *statuses: JobStatus) -> list[JobRecord]:
        """Every job with one of these statuses, oldest first."""
        marks = ", ".join("?" * len(statuses))
        return await self._all(f"{_SELECT} WHERE status IN ({marks}) ORDER BY key", statuses)

    async def insert(
        self,
        job: Job,
        *,
        dataset_id: str,
        reward_server_ids: Iterable[str],
        eval_dataset_id: str | None = None,
    ) -> JobRecord:
        """Adds a job."""
        record = JobRecord(key=0, job=job, dataset_id=dataset_id, eval_dataset_id=eval_dataset_id)
        cursor = await self._connection.execute(
            _INSERT,
            (
                *_changing(record),
                job.id,
                job.spec.model_dump_json(),
                dataset_id,
                eval_dataset_id,
                to_micros(job.created_at),
                json.dumps(asdict(job.gpu_requested)) if job.gpu_requested else None,
                int(job.requires_heartbeat),
                job.created_by,
            ),
        )
        assert cursor.lastrowid is not None
        key = cursor.lastrowid
        await cursor.close()
        await self._connection.executemany(
            "INSERT INTO job_reward_servers VALUES (?, ?, ?)",
            [(key, position, server_id) for position, server_id in enumerate(reward_server_ids)],
        )
        return replace(record, key=key)

    async def count_open(self, created_by: str) -> int:
        """How many jobs of this maker are not over."""
        rows = await self._connection.execute_fetchall(
            "SELECT count(*) FROM jobs WHERE created_by = ? AND status NOT IN (?, ?, ?)", (created_by, *_OVER)
        )
        return int(next(iter(rows))[0])

    async def save(self, record: JobRecord) -> None:
        """Writes everything of a job that can change."""
        await self._connection.execute(_UPDATE, (*_changing(record), record.key))

    async def note_memory(self, key: int, estimate: MemoryEstimate) -> None:
        """Keeps what the job takes in memory."""
        await self._connection.execute(
            "UPDATE jobs SET memory = ? WHERE key = ?", (estimate.model_dump_json(), key)
        )

    async def delete(self, key: int) -> None:
        """Removes the job, and all that the store has of it."""
        await self._connection.execute("DELETE FROM jobs WHERE key = ?", (key,))

    async def note_heartbeat(self, key: int, at: datetime | None) -> None:
        """Keeps the newest sign of life of a job's client; None: it is not waited for any more."""
        await self._connection.execute(
            "UPDATE jobs SET heartbeat_at = ? WHERE key = ?", (optional_to_micros(at), key)
        )

    async def without_heartbeat(self, *, since: datetime) -> list[JobRecord]:
        """Jobs that need signs of life of their clients, had one, and have had none since; paused ones and
        those that are over are left out.
        """
        return await self._all(
            f"{_SELECT} WHERE requires_heartbeat AND heartbeat_at < ? AND status NOT IN (?, ?, ?, ?, ?) "
            "ORDER BY key",
            (to_micros(since), *_OVER, JobStatus.CANCELLING, JobStatus.PAUSED),
        )

    async def reward_server_ids(self, key: int) -> list[str]:
        """Ids of the reward servers of a job, in the order of its rewards."""
        rows = await self._connection.execute_fetchall(
            "SELECT server_id FROM job_reward_servers WHERE job_key = ? ORDER BY position", (key,)
        )
        return [row[0] for row in rows]

    async def needing_dataset(self, dataset_id: str) -> list[str]:
        """Ids of the jobs that are not over (completed, failed or cancelled) and learn, or are evaluated, on
        this dataset.
        """
        rows = await self._connection.execute_fetchall(
            "SELECT id FROM jobs WHERE ? IN (dataset_id, eval_dataset_id) AND status NOT IN (?, ?, ?) "
            "ORDER BY key",
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
        job.preflight.model_dump_json() if job.preflight else None,
        record.stop_reason,
    )


def _record(row: Any) -> JobRecord:
    (
        key, job_id, spec, dataset_id, eval_dataset_id, status, detail, error_code, error_message,
        current_step, total_steps, attempt, run_id, deaths, metrics, latest_checkpoint_id, created_at,
        updated_at,
        started_at, finished_at, preflight, gpu_requested, requires_heartbeat, created_by,
        model_id,
        stop_reason, memory, alerts,
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
        preflight=PreflightReport.model_validate_json(preflight) if preflight else None,
        gpu_requested=RequestedGpu(**json.loads(gpu_requested)) if gpu_requested else None,
        requires_heartbeat=bool(requires_heartbeat),
        created_by=created_by,
        model_id=model_id or "",
        memory=MemoryEstimate.model_validate_json(memory) if memory else None,
        alerts=tuple(alert_of(alert) for alert in json.loads(alerts)),
    )
    return JobRecord(
        key=key,
        job=job,
        dataset_id=dataset_id,
        eval_dataset_id=eval_dataset_id,
        run_id=run_id,
        deaths=deaths,
        stop_reason=stop_reason,
    )
