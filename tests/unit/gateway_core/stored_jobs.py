"""Jobs and runs for tests of the store."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from gateway.events import StatusChanged
from gateway.jobs.job import Job
from gateway.store import Store
from gateway.store.ids import new_id
from gateway.store.jobs import JobRecord
from plaudit.types.jobs import TrainingJobSpec
from plaudit.types.statuses import JobStatus
from plaudit.types.validation import parse_job_spec


def spec(**changes: Any) -> TrainingJobSpec:
    return parse_job_spec(
        {
            "base_model": "builtin:tiny",
            "dataset_id": "numbers",
            "output_name": "adder",
            "rewards": [{"server": "builtin", "reward": "exact_answer"}],
            **changes,
        }
    )


async def add_job(store: Store, status: JobStatus = JobStatus.QUEUED) -> JobRecord:
    time = datetime.now(UTC)
    job = Job(new_id("job"), spec(), status, time, time)
    async with store.transaction() as session:
        record = await session.jobs.insert(job, dataset_id="ds_1", reward_server_ids=["rs_1"])
        await session.events.append(record.key, job.id, StatusChanged(status), time)
    return record


async def add_run(store: Store, record: JobRecord, attempt: int, from_step: int = 0) -> str:
    run_id = new_id("run")
    async with store.transaction() as session:
        await session.runs.insert(
            run_id,
            job_key=record.key,
            attempt=attempt,
            trainer_id="trainer_1",
            from_step=from_step,
            checkpoint_uri="",
            spec_json="{}",
            created_at=datetime.now(UTC),
        )
    return run_id
