"""What happens to a job: metric series, log, watched events, scored completions."""

from __future__ import annotations

from typing import Any, Literal

from gateway.rest.objects._base import Listed, ListedByToken, RestObject, Time
from gateway.rest.objects._jobs import ErrorOfJob


class MetricRow(RestObject):
    """Values of one step."""

    step: int
    attempt: int
    values: dict[str, float]


class MetricsObject(RestObject):
    """Metric series of a job, thinned so that the smallest and the largest value of a bucket survive."""

    metrics: list[MetricRow]
    available_keys: list[str]
    latest_step: int


Level = Literal["info", "warn", "error"]


class EventObject(RestObject):
    """An entry of a job's log; `event_type` is a kind of watched event, `metadata` its fields."""

    id: str
    object: Literal["event"] = "event"
    job_id: str
    level: Level
    event_type: str
    message: str
    metadata: dict[str, Any]
    request_id: None = None
    created_at: Time


class EventList(Listed[EventObject]):
    """The newest entries of a job's log, newest first."""


class StatusChangedBody(RestObject):
    """The status, or what the job waits for, changed."""

    status: str
    detail: str
    error: ErrorOfJob | None


class StepMetricsBody(RestObject):
    """Metrics of one optimizer step, or of the evaluation after it (0: before the first one); the newest
    attempt wins. `total_steps` 0: not told.
    """

    step: int
    attempt: int
    values: dict[str, float]
    total_steps: int


class CheckpointSavedBody(RestObject):
    """A checkpoint was saved."""

    checkpoint_id: str
    step: int
    size_bytes: int


class AlertBody(RestObject):
    """A failure mode that the metrics show."""

    kind: str
    severity: str
    message: str
    step: int
    evidence: dict[str, float]


class LogLineBody(RestObject):
    """A line of the log; `fields_json` is a JSON object."""

    level: str
    message: str
    fields_json: str


class AttemptStartedBody(RestObject):
    """A run began; points after `from_step` of earlier attempts are superseded."""

    attempt: int
    from_step: int


class BookmarkBody(RestObject):
    """Nothing happened, but the cursor moved on."""


class WatchedEvent(RestObject):
    """The data of a server-sent event: the field that `kind` names is there, the other kinds' are not."""

    cursor: str
    event_time: Time
    job_id: str | None
    kind: str
    status_changed: StatusChangedBody | None = None
    step_metrics: StepMetricsBody | None = None
    checkpoint_saved: CheckpointSavedBody | None = None
    alert: AlertBody | None = None
    log_line: LogLineBody | None = None
    attempt_started: AttemptStartedBody | None = None
    bookmark: BookmarkBody | None = None


class OutcomeObject(RestObject):
    """What one reward said of a completion; `status` is scored, not_applicable or a failure code."""

    name: str
    status: str
    value: float | None
    explanation: str
    scored_at: Time | None


class CompletionObject(RestObject):
    """A scored completion; `reward` is null where it could not be scored."""

    object: Literal["completion"] = "completion"
    id: str
    step: int
    attempt: int
    group_id: str
    prompt_text: str
    completion_text: str
    token_count: int
    truncated: bool
    reward: float | None
    advantage: float | None
    outcomes: list[OutcomeObject]


class CompletionList(ListedByToken[CompletionObject]):
    """A page of completions; `page_token=<next_page_token>` asks for the next."""
