"""What happens to a job: events, metric series, scored completions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias

from plaudit.client.models._jobs import JobError
from plaudit.types.statuses import JobStatus


@dataclass(frozen=True, slots=True)
class StepMetrics:
    """Metric values of one optimizer step, and the attempt that produced them."""

    step: int
    attempt: int
    values: Mapping[str, float]
    total_steps: int = 0


@dataclass(frozen=True, slots=True)
class MetricSeries:
    """Thinned series: one row per step, every name that the job has reported, and the newest step."""

    metrics: tuple[StepMetrics, ...]
    available_keys: tuple[str, ...]
    latest_step: int

    def series(self, key: str) -> list[tuple[int, float]]:
        """The points of one metric as (step, value)."""
        return [(row.step, row.values[key]) for row in self.metrics if key in row.values]


@dataclass(frozen=True, slots=True)
class StatusChanged:
    """The status of a job changed, or what it waits for."""

    status: JobStatus
    detail: str
    error: JobError | None


@dataclass(frozen=True, slots=True)
class CheckpointSaved:
    """A checkpoint was saved after `step`; `size_bytes` on disk."""

    checkpoint_id: str
    step: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Alert:
    """A failure mode that the metrics show; `severity` is info, warning or critical."""

    kind: str
    severity: str
    message: str
    step: int
    evidence: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line of the job's log; `fields_json` holds structured fields as JSON."""

    level: str
    message: str
    fields_json: str


@dataclass(frozen=True, slots=True)
class AttemptStarted:
    """A run began after `from_step` (0: at the base model); later points of older attempts are void."""

    attempt: int
    from_step: int


@dataclass(frozen=True, slots=True)
class Bookmark:
    """Nothing happened, but the cursor moved on."""


EventBody: TypeAlias = (
    StatusChanged | StepMetrics | CheckpointSaved | Alert | LogLine | AttemptStarted | Bookmark
)


@dataclass(frozen=True, slots=True)
class JobEvent:
    """One event of a job. `cursor` resumes a watch after it."""

    cursor: str
    job_id: str
    time: datetime
    body: EventBody


@dataclass(frozen=True, slots=True)
class RewardOutcome:
    """Outcome of one reward: `value` is None where it is not applicable or failed, as `status` says."""

    name: str
    value: float | None
    status: str
    explanation: str
    scored_at: datetime | None


@dataclass(frozen=True, slots=True)
class ScoredCompletion:
    """A completion with its scores. `reward` is None where it could not be scored."""

    step: int
    attempt: int
    group_id: str
    completion_id: str
    prompt_text: str
    completion_text: str
    token_count: int
    truncated: bool
    reward: float | None
    advantage: float | None
    outcomes: tuple[RewardOutcome, ...]
