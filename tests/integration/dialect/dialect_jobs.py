"""A job as clients of the dialect ask for it, and how tests move it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from edges import Edges

from gateway.events import AttemptStarted, LogLine, Payload, StatusChanged, StepMetrics
from plaudit.gateway.v1 import training_job_pb2
from plaudit.types.statuses import JobStatus

SOURCE = "def reward(prompts, completions, **columns):\n    return [float(len(c)) for c in completions]\n"
OTHER_SOURCE = SOURCE.replace("float(len(c))", "-float(len(c))")

BODY: dict[str, Any] = {
    "base_model": "builtin:tiny",
    "dataset_id": "builtin:additions",
    "output_name": "adder",
    "hyperparameters": {"max_steps": 4},
}
"""Without rewards."""


def spec_message() -> training_job_pb2.TrainingJobSpec:
    """BODY as a message."""
    return training_job_pb2.TrainingJobSpec(
        base_model=BODY["base_model"],
        dataset_id=BODY["dataset_id"],
        output_name=BODY["output_name"],
        hyperparameters_json='{"max_steps": 4}',
    )


async def created(edges: Edges, **fields: Any) -> dict[str, Any]:
    """The job of BODY and these fields."""
    answer = await edges.http.post("/v1/training_jobs", json={**BODY, **fields})
    assert answer.status_code == 200, answer.text
    job: dict[str, Any] = answer.json()
    return job


async def refused(edges: Edges, fields: dict[str, Any], status: int = 422) -> dict[str, str]:
    """What is told of BODY with these fields, by field."""
    answer = await edges.http.post("/v1/training_jobs", json={**BODY, **fields})
    assert answer.status_code == status, answer.text
    return {error["param"]: error["message"] for error in answer.json()["error"]["errors"]}


async def tell(edges: Edges, job_id: str, *payloads: Payload, attempt: int | None = None) -> None:
    """Adds events as a run of the job would, and moves the job by the statuses among them."""
    async with edges.store.transaction() as session:
        record = await session.jobs.find(job_id)
        assert record is not None
        for payload in payloads:
            await session.events.append(record.key, job_id, payload, record.job.created_at)
            if isinstance(payload, StatusChanged):
                record = replace(record, job=replace(record.job, status=payload.status, error=payload.error))
            if isinstance(payload, AttemptStarted):
                record = replace(record, job=replace(record.job, attempt=payload.attempt))
        await session.jobs.save(record)


async def end(edges: Edges, job_id: str, status: JobStatus = JobStatus.COMPLETED) -> None:
    """Lets the job have run, and be over."""
    await tell(
        edges,
        job_id,
        AttemptStarted(1, 0),
        StatusChanged(JobStatus.RUNNING),
        StepMetrics(1, 1, {"reward_mean": 0.5, "loss": float("nan")}, 2),
        LogLine("warning", "two\nlines\u2028and [Job completed]", '{"note": "x"}'),
        StatusChanged(status),
    )
