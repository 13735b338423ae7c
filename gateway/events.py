"""What happened, in the order in which it was stored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, TypeAlias

from gateway.jobs.job import JobError
from plaudit.types.statuses import JobStatus


@dataclass(frozen=True, slots=True)
class StatusChanged:
    """The status, or what the job waits for, changed. `error` is set only for a failed job."""

    status: JobStatus
    detail: str = ""
    error: JobError | None = None


@dataclass(frozen=True, slots=True)
class StepMetrics:
    """Metrics of one optimizer step, or of the evaluation after it (0: before the first one); `values` may
    hold NaN. `total_steps` is 0 where it is not told, as with evaluations.
    """

    step: int
    attempt: int
    values: Mapping[str, float]
    total_steps: int = 0


@dataclass(frozen=True, slots=True)
class CheckpointSaved:
    """A checkpoint was taken after `step`."""

    checkpoint_id: str
    step: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Alert:
    """A failure mode that the metrics show."""

    kind: str
    severity: str
    message: str
    step: int
    evidence: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line of the log: `level` is debug, info, warning or error; `fields_json` a JSON object."""

    level: str
    message: str
    fields_json: str = "{}"


@dataclass(frozen=True, slots=True)
class AttemptStarted:
    """A run began; points after `from_step` of earlier attempts are superseded. 0: the base model."""

    attempt: int
    from_step: int


@dataclass(frozen=True, slots=True)
class Bookmark:
    """Nothing happened, but the cursor moved on."""


Payload: TypeAlias = StatusChanged | StepMetrics | CheckpointSaved | Alert | LogLine | AttemptStarted
"""What can be stored; a Bookmark is only ever sent."""


KINDS: Final[Mapping[type, str]] = {
    StatusChanged: "status_changed",
    StepMetrics: "step_metrics",
    CheckpointSaved: "checkpoint_saved",
    Alert: "alert",
    LogLine: "log_line",
    Bookmark: "bookmark",
    AttemptStarted: "attempt_started",
}
"""The word for each kind of event, as in protos, REST and store."""


@dataclass(frozen=True, slots=True)
class Event:
    """One event. `cursor` is opaque; a reader that passes it as `after_cursor` gets every later event once.

    `number` is the commit-ordered position over all jobs (a bookmark's: how far the reader has read).
    `job_id` is "" only in a bookmark of a reader of all jobs. In `forms` whoever hands the event out keeps
    what it made of it, since a thousand readers may get the same one.
    """

    cursor: str
    number: int
    time: datetime
    job_id: str
    payload: Payload | Bookmark
    forms: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @property
    def kind(self) -> str:
        """One of KINDS' words."""
        return KINDS[type(self.payload)]


def cursor_of(store_id: str, number: int) -> str:
    """The cursor behind the event with this number of this store."""
    return f"{store_id}-{number}"
