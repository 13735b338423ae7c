"""What the SDK returns: plain, typed, immutable data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, TypeAlias

from plaudit.types.access import ServerAccess
from plaudit.types.jobs import RewardBinding, TrainingJobSpec
from plaudit.types.preflight import PreflightReport
from plaudit.types.rescores import RescoreStatus
from plaudit.types.roles import Role
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


@dataclass(frozen=True, slots=True)
class TriedSource:
    """What the first rows of a source are like. `error` is "" where it can be connected; `row_count` None
    where the source does not tell it.
    """

    error: str
    row_count: int | None
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RewardFunction:
    """A Python file with a function that scores. `source` is "" where it comes from a list."""

    id: str
    name: str
    format: str
    filename: str
    source: str
    size_bytes: int
    sha256: str
    created_at: datetime | None


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


@dataclass(frozen=True, slots=True)
class RescoredReward:
    """What one reward made of the completions; `mean` is None where it scored none."""

    name: str
    scored_count: int
    not_applicable_count: int
    failed_count: int
    mean: float | None
    failure: str


@dataclass(frozen=True, slots=True)
class RescoreSummary:
    """Old and new weighted sums in comparison, over the `compared_count` completions that have both.

    `correlation` is Pearson's; `rank_agreement` the share of the `ordered_pair_count` pairs within a group,
    ordered by old or new, that both order alike. None where it cannot be told.
    """

    compared_count: int
    old_mean: float | None
    new_mean: float | None
    correlation: float | None
    rank_agreement: float | None
    ordered_pair_count: int
    failed_count: int
    not_applicable_count: int
    rewards: tuple[RescoredReward, ...]


@dataclass(frozen=True, slots=True)
class Rescore:
    """A rescore as it stood when it was read; counts are of completions."""

    id: str
    job_id: str
    rewards: tuple[RewardBinding, ...]
    from_step: int
    to_step: int
    status: RescoreStatus
    status_detail: str
    error: JobError | None
    done_count: int
    total_count: int
    summary: RescoreSummary
    created_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None


@dataclass(frozen=True, slots=True)
class RescoreResult:
    """A completion with the scores that it had, and those that it has now.

    `new_reward` is None where it could not be scored.
    """

    completion: ScoredCompletion
    new_reward: float | None
    new_outcomes: tuple[RewardOutcome, ...]


@dataclass(frozen=True, slots=True)
class Dataset:
    """A dataset: `columns` are those besides the prompt, `methods` what its rows can be trained by."""

    id: str
    name: str
    source_type: str
    row_count: int
    columns: tuple[str, ...]
    methods: tuple[str, ...]
    size_bytes: int
    sha256: str
    created_at: datetime | None
    source_uri: str = ""
    """What it was connected to, "" for an upload."""


@dataclass(frozen=True, slots=True)
class DatasetRow:
    """A row as jobs read it: `number` counts from 0, `prompt` is text or chat turns, `columns` the others."""

    number: int
    prompt: Any
    columns: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class OfferedReward:
    """A reward that a server offers."""

    name: str
    description: str
    min_value: float | None
    max_value: float | None
    required_columns: tuple[str, ...]
    config_schema_json: str
    problem: str
    """Why no job can use it; "" where one can."""


class ReplicaState(StrEnum):
    """What a check found at an address of a reward server."""

    SERVING = "serving"
    NOT_SERVING = "not_serving"
    """Something answers there, but does not serve."""
    UNREACHABLE = "unreachable"


@dataclass(frozen=True, slots=True)
class RewardServerReplica:
    """An address of a reward server, as it was found at `checked_at`; `reason` is "" where it serves.

    `since` is the first check that found this state; `latency_seconds` None where it did not describe itself.
    """

    address: str
    state: ReplicaState
    reason: str
    since: datetime | None
    checked_at: datetime | None
    server_version: str
    latency_seconds: float | None


@dataclass(frozen=True, slots=True)
class RewardServer:
    """A registered reward server, as it answered when it was read. Secrets are named, never held."""

    id: str
    name: str
    addresses: tuple[str, ...]
    created_at: datetime | None
    reachable: bool
    unreachable_reason: str
    server_version: str
    rewards: tuple[OfferedReward, ...]
    access: ServerAccess
    replicas: tuple[RewardServerReplica, ...]
    warnings: tuple[str, ...]


class ModelStatus(StrEnum):
    """Whether a model can be had."""

    EXPORTING = "exporting"
    AVAILABLE = "available"
    UNAVAILABLE = "unavailable"


class ModelKind(StrEnum):
    """What the files of a model hold."""

    FULL = "full"
    """A whole model, all of whose weights were trained."""
    MERGED = "merged"
    """A whole model, of which adapters are a part."""
    ADAPTER = "adapter"
    """Adapters alone, for the base model."""


@dataclass(frozen=True, slots=True)
class ModelFile:
    """A file of a model: `path` below its folder, SHA-256 in hex."""

    path: str
    size_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Model:
    """A model that a job has made, as it stood when it was read.

    `is_final`: of the job's last checkpoint, by the run itself; others were asked for. `status_detail` says
    why it is not available, or how its export goes. `files` are all that it has once it is available.
    """

    id: str
    name: str
    job_id: str
    base_model: str
    step: int
    attempt: int
    is_final: bool
    kind: ModelKind
    dtype: str
    status: ModelStatus
    status_detail: str
    size_bytes: int
    files: tuple[ModelFile, ...]
    created_at: datetime | None


@dataclass(frozen=True, slots=True)
class DownloadProgress:
    """How far a download has come: the file that arrives, and the bytes of all files."""

    path: str
    received_bytes: int
    total_bytes: int


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint of a job, "job_...@120", whose files are there."""

    id: str
    job_id: str
    step: int
    attempt: int
    size_bytes: int
    file_count: int
    has_adapters: bool
    created_at: datetime | None


@dataclass(frozen=True, slots=True)
class Token:
    """A token of the gateway. `last_used_at` is to the minute; `created_by` names the token that made it, ""
    where none did.
    """

    id: str
    name: str
    role: Role
    created_at: datetime
    expires_at: datetime | None
    last_used_at: datetime | None
    created_by: str


@dataclass(frozen=True, slots=True)
class NewToken:
    """A token that was just made, and its secret, which is never shown again."""

    token: Token
    secret: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Caller:
    """Who calls. `token_id` is "" where the gateway asks for no tokens."""

    token_id: str
    name: str
    role: Role


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """A call that changed something or was not allowed to. `call` is a gRPC method or "POST /v1/path",
    `subject` the id of what it was about or "", `outcome` "ok" or the reason of its error.
    """

    time: datetime
    token_id: str
    caller: str
    role: Role
    peer: str
    call: str
    subject: str
    outcome: str
