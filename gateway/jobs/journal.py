"""What a trainer tells: itself, its runs, and the entries of a run's journal. plaudit.trainer.v1 as plain
data.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias

from gateway.jobs.job import JobError
from gateway.models.model import ModelFile, ModelKind, WeightType
from plaudit.errors import FieldViolation
from plaudit.types.memory import MemoryEstimate
from plaudit.types.preflight import PreflightReport
from plaudit.types.statuses import RunState
from plaudit.types.token_statistics import TokenStatistics


@dataclass(frozen=True, slots=True)
class RunStateChanged:
    """The run's state changed. `error` is only a failed run's; `reason` is why it paused, for people."""

    state: RunState
    error: JobError | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class StepCompleted:
    """An optimizer step finished, or was skipped. `metrics` may hold NaN; `total_steps` 0 is not told."""

    step: int
    total_steps: int
    metrics: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class CheckpointWritten:
    """A checkpoint is complete in the folder `uri`, relative to the artifact root."""

    step: int
    uri: str
    size_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class CheckpointRemoved:
    """A checkpoint is gone from the folder `uri`."""

    step: int
    uri: str


@dataclass(frozen=True, slots=True)
class CompletionsWritten:
    """Scored completions of a step are in the Parquet file `uri`, relative to the artifact root."""

    step: int
    uri: str
    row_count: int
    size_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class EvaluationFinished:
    """The policy after `step` (0: before the first one) was evaluated. `metrics` may hold NaN; `completions`
    is None where none are kept.
    """

    step: int
    metrics: Mapping[str, float]
    completions: CompletionsWritten | None


@dataclass(frozen=True, slots=True)
class LogRecord:
    """A line for people: a structured log record as JSON."""

    record_json: str


@dataclass(frozen=True, slots=True)
class PreflightFinished:
    """The run's preflight is done; where it stops the run, the failure comes next."""

    report: PreflightReport


@dataclass(frozen=True, slots=True)
class ExportedModel:
    """A model in the folder `uri`, relative to the artifact root."""

    uri: str
    kind: ModelKind
    dtype: WeightType
    files: tuple[ModelFile, ...]


@dataclass(frozen=True, slots=True)
class ModelExported:
    """The model of the last checkpoint was exported, or could not be: one of the two is None."""

    step: int
    model: ExportedModel | None
    error: JobError | None


@dataclass(frozen=True, slots=True)
class MemoryEstimated:
    """What the run takes, now that its model and prompts are loaded."""

    estimate: MemoryEstimate


@dataclass(frozen=True, slots=True)
class UnknownEntry:
    """An entry of a kind that a newer trainer writes: its place in the journal counts, its content is
    skipped.
    """


JournalEvent: TypeAlias = (
    RunStateChanged
    | StepCompleted
    | CheckpointWritten
    | CheckpointRemoved
    | CompletionsWritten
    | EvaluationFinished
    | LogRecord
    | PreflightFinished
    | ModelExported
    | MemoryEstimated
    | UnknownEntry
)


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """An entry: `sequence` counts from 1 without gaps, `time` is the trainer's clock."""

    sequence: int
    time: datetime
    event: JournalEvent


@dataclass(frozen=True, slots=True)
class ReportedRun:
    """A run as its trainer reports it now. `status_detail` is what it waits for, for people."""

    run_id: str
    job_id: str
    attempt: int
    state: RunState
    last_sequence: int
    status_detail: str = ""


@dataclass(frozen=True, slots=True)
class TrainerInfo:
    """What a trainer says of itself. `trainer_id` names its data directory, for ever."""

    trainer_id: str
    trainer_version: str
    max_concurrent_runs: int


@dataclass(frozen=True, slots=True)
class ExportProgress:
    """What has become of an export; without model and error it is under way. `detail` is for people."""

    model: ExportedModel | None = None
    error: JobError | None = None
    detail: str = ""


@dataclass(frozen=True, slots=True)
class CheckedRun:
    """What a trainer knows of a run that is not started: its memory, or why that is not known yet; why it
    would fail there; and what may go wrong, for people.
    """

    estimate: MemoryEstimate | None
    unknown_reason: str
    obstacles: tuple[FieldViolation, ...]
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TokenCount:
    """What has become of a count; without statistics and error it is under way."""

    statistics: TokenStatistics | None = None
    error: JobError | None = None

    @property
    def is_over(self) -> bool:
        """Whether there is nothing to wait for."""
        return self.statistics is not None or self.error is not None
