"""A training job as the gateway knows it: plain data, no wire, no store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Generic, TypeVar

from plaudit.types.jobs import TrainingJobSpec
from plaudit.types.statuses import JobStatus

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class JobError:
    """Why a job failed: `code` for programs (plaudit.types.statuses.ErrorCode), `message` for people."""

    code: str
    message: str


@dataclass(frozen=True, slots=True)
class Job:
    """A training job. Every time is UTC; steps are optimizer steps.

    `metrics` holds the newest value of every metric and may hold NaN. `total_steps` is 0 until the trainer
    has told it. `latest_checkpoint_id` is "{job id}@{step}", or "" where there is none.
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


@dataclass(frozen=True, slots=True)
class Page(Generic[Item]):
    """Some items, and the token that continues after them; "" where these are the last."""

    items: Sequence[Item]
    next_page_token: str = ""


def checkpoint_id(job_id: str, step: int) -> str:
    """Names the checkpoint that a job took after `step`."""
    return f"{job_id}@{step}"
