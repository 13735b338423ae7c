"""What REST answers with: each object says by `object` what it is, and is documented in /openapi.json.

A number that JSON does not have travels as text: "NaN", "Infinity" or "-Infinity". Times are ISO 8601, UTC.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PlainSerializer

from plaudit.types.preflight import PreflightMode, PreflightReport


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


class GpuObject(RestObject):
    """A GPU that a client asked for."""

    type: str
    count: int


class JobAlertObject(RestObject):
    """A failure mode that the metrics of a job showed from `step` on; `ended_step` is null while they do.

    `subject` is the reward that it is of, "" for the whole job.
    """

    kind: str
    subject: str
    severity: str
    message: str
    evidence: dict[str, float]
    step: int
    raised_at: Time
    ended_step: int | None


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
    model_id: str | None
    preflight: PreflightMode
    preflight_report: PreflightReport | None
    alerts: list[JobAlertObject]
    created_at: Time
    updated_at: Time
    started_at: Time | None
    completed_at: Time | None
    duration_seconds: float | None
    requires_heartbeat: bool
    created_by: str | None
    gpu_requested: GpuObject | None
    gpu: None = None
    dashboard_url: None = None
    download_url: str | None = None
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
    source_uri: str | None
    huggingface_dataset: str | None
    num_rows: int
    columns: list[str]
    methods: list[str]
    size_bytes: int
    sha256: str
    created_at: Time


class TriedSourceObject(RestObject):
    """What the first rows of a source are like; `error` says why it cannot be connected."""

    object: Literal["dataset_validation"] = "dataset_validation"
    valid: bool
    num_rows: int | None
    columns: list[str]
    error: str | None


class DatasetList(RestObject):
    """A page of datasets, newest first; `after=<last id>` asks for the next."""

    object: Literal["list"] = "list"
    data: list[DatasetObject]
    has_more: bool


class DatasetRowObject(RestObject):
    """A row of a dataset as jobs read it; `prompt` is text or a list of chat turns."""

    object: Literal["dataset_row"] = "dataset_row"
    row_number: int
    prompt: str | list[dict[str, str]]
    columns: dict[str, Any]


class DatasetRowList(RestObject):
    """A page of rows, in their order; `page_token=<next_page_token>` asks for the next."""

    object: Literal["list"] = "list"
    data: list[DatasetRowObject]
    has_more: bool
    next_page_token: str | None


class OfferedRewardObject(RestObject):
    """A reward on offer; `config_schema` is null where it takes no configuration. `problem` says why no job
    can use it, and is null where one can.
    """

    name: str
    description: str
    min_value: float | None
    max_value: float | None
    required_columns: list[str]
    config_schema: dict[str, Any] | None
    problem: str | None


class TlsObject(RestObject):
    """TLS towards a reward server; CA and certificate are names."""

    ca: str | None
    client_certificate: str | None
    server_name: str | None


class ReplicaObject(RestObject):
    """One address of a reward server, as it was found at `checked_at`; `reason` is null where it serves.

    `since` is the gateway's first check that found this state, with no other in between.
    """

    address: str
    state: Literal["serving", "not_serving", "unreachable"]
    reason: str | None
    since: Time
    checked_at: Time
    server_version: str | None
    latency_seconds: float | None


class RewardServerObject(RestObject):
    """A registered reward server, and what it answered when this was asked. Secrets are named, never held."""

    id: str
    object: Literal["reward_server"] = "reward_server"
    name: str
    addresses: list[str]
    configured: bool
    reachable: bool
    unreachable_reason: str | None
    server_version: str | None
    rewards: list[OfferedRewardObject]
    tls: TlsObject | None
    credential: str | None
    plaintext: bool
    replicas: list[ReplicaObject]
    warnings: list[str]
    created_at: Time


class RewardServerList(RestObject):
    """Every reward server, by name."""

    object: Literal["list"] = "list"
    data: list[RewardServerObject]
    has_more: Literal[False] = False


class DownloadFile(RestObject):
    """A file to download: `url` is absolute, authorises itself for an hour, and takes ranges."""

    path: str
    url: str
    size_bytes: int
    sha256: str


class ModelObject(RestObject):
    """A model: the export of a job's checkpoint. `download_url` is that of its weights, or of the index that
    names their files; null until it is available. `status_detail` says why it is not.
    """

    id: str
    object: Literal["model"] = "model"
    name: str
    source: Literal["training_job"] = "training_job"
    status: Literal["exporting", "available", "unavailable"]
    status_detail: str
    base_model: str
    training_job_id: str
    step: int
    attempt: int
    is_final: bool
    kind: Literal["full", "merged", "adapter"]
    artifact_type: Literal["full", "adapter"]
    dtype: str
    size_bytes: int
    download_url: str | None
    files: list[DownloadFile]
    created_at: Time


class ModelList(RestObject):
    """A page of models, newest first; `after=<last id>` asks for the next."""

    object: Literal["list"] = "list"
    data: list[ModelObject]
    has_more: bool


class NewModel(BaseModel):
    """A checkpoint to export."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    checkpoint: str = Field(
        description="A checkpoint, or a job: its newest checkpoint.", examples=["job_01@120"]
    )
    form: str = Field(
        default="merged",
        description='"merged": the whole model; "adapter": adapters alone.',
        examples=["merged"],
    )
    dtype: str = Field(
        default="float32", description='Type of the weights: "float32" or "bfloat16".', examples=["float32"]
    )


class CheckpointObject(RestObject):
    """A checkpoint that is there: weights, and what it takes to go on training."""

    id: str
    object: Literal["checkpoint"] = "checkpoint"
    training_job_id: str
    step: int
    attempt: int
    status: Literal["ready"] = "ready"
    payload: Literal["resumable"] = "resumable"
    size_bytes: int
    file_count: int
    has_adapters: bool
    pinned: Literal[False] = False
    created_at: Time


class CheckpointList(RestObject):
    """A page of checkpoints, newest step first; `after=<last id>` asks for the next."""

    object: Literal["list"] = "list"
    data: list[CheckpointObject]
    has_more: bool


class CheckpointDownload(RestObject):
    """The files of a checkpoint: what `from_pretrained` loads (weights), all (resumable), or adapters."""

    id: str
    object: Literal["checkpoint_download"] = "checkpoint_download"
    artifact: Literal["weights", "resumable", "adapter"]
    files: list[DownloadFile]


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
