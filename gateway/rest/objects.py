"""What REST answers with: each object says by `object` what it is, and is documented in /openapi.json.

A number that JSON does not have travels as text: "NaN", "Infinity" or "-Infinity". Times are ISO 8601, UTC.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, PlainSerializer


def iso_time(time: datetime) -> str:
    """A time as REST has it."""
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")


Time = Annotated[datetime, PlainSerializer(iso_time, return_type=str)]


class RestObject(BaseModel):
    """Base of what is answered."""

    model_config = ConfigDict(frozen=True, ser_json_inf_nan="strings")


class ErrorOfJob(RestObject):
    """Why a job failed: `code` for programs, `message` for people."""

    code: str
    message: str


class TrainingJobObject(RestObject):
    """A training job; `metrics` is its latest sample. What Plaudit has no notion of is null."""

    id: str
    object: Literal["training_job"] = "training_job"
    status: str
    status_detail: str
    error: ErrorOfJob | None
    base_model: str
    dataset_id: str
    output_name: str
    method: str
    hyperparameters: dict[str, Any]
    rewards: list[dict[str, Any]]
    reward_count: int
    resume_from: str | None
    attempt: int
    current_step: int
    total_steps: int | None
    metrics: dict[str, float]
    current_loss: float | None
    latest_checkpoint_id: str | None
    created_at: Time
    updated_at: Time
    started_at: Time | None
    completed_at: Time | None
    duration_seconds: float | None
    gpu: None = None
    gpu_requested: None = None
    dashboard_url: None = None
    download_url: None = None
    wandb_run_url: None = None
    cost_usd: None = None


class JobList(RestObject):
    """A page of jobs, newest first; `after=<last id>` asks for the next."""

    object: Literal["list"] = "list"
    data: list[TrainingJobObject]
    has_more: bool


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


class EventList(RestObject):
    """The newest entries of a job's log, newest first."""

    object: Literal["list"] = "list"
    data: list[EventObject]
    has_more: bool


class StatusChangedBody(RestObject):
    """The status, or what the job waits for, changed."""

    status: str
    detail: str
    error: ErrorOfJob | None


class StepMetricsBody(RestObject):
    """Metrics of one optimizer step; the newest attempt wins. `total_steps` 0: not told."""

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


class CompletionList(RestObject):
    """A page of completions; `page_token=<next_page_token>` asks for the next."""

    object: Literal["list"] = "list"
    data: list[CompletionObject]
    has_more: bool
    next_page_token: str | None


class DatasetObject(RestObject):
    """A dataset; `columns` are those besides the prompt."""

    id: str
    object: Literal["dataset"] = "dataset"
    name: str
    source_type: str
    source_uri: None = None
    huggingface_dataset: None = None
    num_rows: int
    columns: list[str]
    size_bytes: int
    sha256: str
    created_at: Time


class DatasetList(RestObject):
    """A page of datasets, newest first; `after=<last id>` asks for the next."""

    object: Literal["list"] = "list"
    data: list[DatasetObject]
    has_more: bool


class OfferedRewardObject(RestObject):
    """A reward on offer; `config_schema` is null where it takes no configuration."""

    name: str
    description: str
    min_value: float | None
    max_value: float | None
    required_columns: list[str]
    config_schema: dict[str, Any] | None


class RewardServerObject(RestObject):
    """A registered reward server, and what it answered when this was asked."""

    id: str
    object: Literal["reward_server"] = "reward_server"
    name: str
    addresses: list[str]
    configured: bool
    reachable: bool
    unreachable_reason: str | None
    server_version: str | None
    rewards: list[OfferedRewardObject]
    created_at: Time


class RewardServerList(RestObject):
    """Every reward server, by name."""

    object: Literal["list"] = "list"
    data: list[RewardServerObject]
    has_more: Literal[False] = False


class Deleted(RestObject):
    """Confirms that something is deleted."""

    id: str
    object: str
    deleted: Literal[True] = True


class WrongField(RestObject):
    """One wrong field of a request."""

    param: str
    message: str


class ErrorBody(RestObject):
    """Why a request failed: the words that gRPC has too."""

    type: Literal["invalid_request_error", "rate_limit_error", "api_error"]
    code: str | None
    message: str
    param: str | None
    errors: list[WrongField]
    retry_after_seconds: float | None = None


class ErrorEnvelope(RestObject):
    """The body of every failure."""

    error: ErrorBody
