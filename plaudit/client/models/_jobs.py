"""Training jobs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from plaudit.types.jobs import TrainingJobSpec
from plaudit.types.memory import MemoryEstimate
from plaudit.types.preflight import PreflightReport
from plaudit.types.statuses import JobStatus


@dataclass(frozen=True, slots=True)
class JobError:
    """Why a job failed: `code` for programs, `message` for people."""

    code: str
    message: str


@dataclass(frozen=True, slots=True)
class JobAlert:
    """A failure mode that a job's metrics showed at `step`; `severity` is info, warning or critical.

    `subject` is the reward that it is of, "" for the whole job. `ended_step` is the step at which the metrics
    no longer showed it, None while they do.
    """

    kind: str
    subject: str
    severity: str
    message: str
    evidence: Mapping[str, float]
    step: int
    raised_at: datetime | None
    ended_step: int | None


@dataclass(frozen=True, slots=True)
class TrainingJob:
    """A training job as it stood when it was read. `metrics` is the newest value of every metric.

    `preflight` is what the newest preflight saw, None where there was none. `model_id` names the model of its
    last checkpoint, "" where none can be had. `alerts` are the newest ones, newest first.
    `memory` is what training takes, None where that is not known yet.
    """

    id: str
    spec: TrainingJobSpec
    status: JobStatus
    status_detail: str
    error: JobError | None
    current_step: int
    total_steps: int
    attempt: int
    metrics: Mapping[str, float]
    latest_checkpoint_id: str
    created_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    updated_at: datetime | None
    preflight: PreflightReport | None = None
    model_id: str = ""
    requires_heartbeat: bool = False
    created_by: str = ""
    alerts: tuple[JobAlert, ...] = ()
    memory: MemoryEstimate | None = None
