"""A training job as the gateway knows it: plain data, no wire, no store."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from plaudit.types.jobs import TrainingJobSpec
from plaudit.types.memory import MemoryEstimate
from plaudit.types.preflight import PreflightReport, Severity
from plaudit.types.statuses import JobStatus


@dataclass(frozen=True, slots=True)
class JobError:
    """Why a job failed: `code` for programs (plaudit.types.statuses.ErrorCode), `message` for people."""

    code: str
    message: str


@dataclass(frozen=True, slots=True)
class RequestedGpu:
    """The GPU that a client asked for. It has no effect: a job runs on what its trainer has."""

    type: str
    count: int


@dataclass(frozen=True, slots=True)
class JobAlert:
    """A failure mode that the series of a job showed at `step`, from `raised_at` (the trainer's clock) on.

    `subject` is the reward that it is of, "" for the whole job. Where it became worse, `severity`, `message`,
    `evidence` and `step` are of then. `ended_step` is the step at which the series no longer showed it, None
    while they do.
    """

    kind: str
    subject: str
    severity: Severity
    message: str
    evidence: Mapping[str, float]
    step: int
    raised_at: datetime
    ended_step: int | None = None


@dataclass(frozen=True, slots=True)
class Job:
    """A training job. Every time is UTC; steps are optimizer steps.

    `metrics` holds the newest value of every metric and may hold NaN. `total_steps` is 0 until the trainer
    has told it. `latest_checkpoint_id` is "{job id}@{step}", or "" where there is none.
    `preflight` is what the newest preflight saw, None where there was none. A job that `requires_heartbeat`
    is cancelled where signs of life of its client, once they came, stay away. `created_by` is
    the name of the token that made it, "" where none was asked for. `model_id` names the model of its last
    checkpoint, "" where none can be had. `alerts` are the newest ones, newest first.
    `memory` is what training takes, None where that is not known yet.
    """

    id: str
    spec: TrainingJobSpec
    status: JobStatus
    created_at: datetime
    updated_at: datetime
    status_detail: str = ""
    error: JobError | None = None
    current_step: int = 0
    total_steps: int = 0
    attempt: int = 0
    metrics: Mapping[str, float] = field(default_factory=dict)
    started_at: datetime | None = None
    finished_at: datetime | None = None
    latest_checkpoint_id: str = ""
    preflight: PreflightReport | None = None
    gpu_requested: RequestedGpu | None = None
    requires_heartbeat: bool = False
    created_by: str = ""
    model_id: str = ""
    alerts: tuple[JobAlert, ...] = ()
    memory: MemoryEstimate | None = None


def checkpoint_id(job_id: str, step: int) -> str:
    """Names the checkpoint that a job took after `step`."""
    return f"{job_id}@{step}"
