"""What a run says of itself: the kinds of a journal's entries."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from plaudit.types.memory import MemoryEstimate
from plaudit.types.preflight import PreflightReport
from plaudit.types.statuses import ErrorCode, RunState
from trainer_service.exported import ExportedModel

LogLevel: TypeAlias = Literal["debug", "info", "warning", "error"]


@dataclass(frozen=True, slots=True)
class RunError:
    """Why a run failed: the cause for programs, and for people what went wrong and what to try."""

    code: ErrorCode
    message: str


@dataclass(frozen=True, slots=True)
class RunStateChanged:
    """The run's state changed. `error` is set only for FAILED; `reason` says why it paused, for people."""

    state: RunState
    error: RunError | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class StepCompleted:
    """An optimizer step, counted from 1, finished or was skipped. Values of `metrics` may be NaN."""

    step: int
    total_steps: int
    metrics: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class CheckpointSaved:
    """A checkpoint is complete on disk. `uri` is relative to the artifact root; `sha256` its manifest's."""

    step: int
    uri: str
    size_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class CheckpointRemoved:
    """A checkpoint was removed by checkpoint_keep."""

    step: int
    uri: str


@dataclass(frozen=True, slots=True)
class CompletionsWritten:
    """Scored completions of a step are in a Parquet file, `uri` relative to the artifact root."""

    step: int
    uri: str
    row_count: int
    size_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class EvaluationFinished:
    """The policy after `step` (0: before the first) was evaluated on held-out prompts. Values of `metrics`
    may be NaN; `completions` is None where none are kept.
    """

    step: int
    metrics: Mapping[str, float]
    completions: CompletionsWritten | None


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line for people, with structured `fields` that JSON can hold."""

    level: LogLevel
    message: str
    fields: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PreflightFinished:
    """The preflight is done; where it stops the run, the failure comes next."""

    report: PreflightReport


@dataclass(frozen=True, slots=True)
class ModelExported:
    """The model of the checkpoint after `step` was exported, or could not be: one of the two is None."""

    step: int
    model: ExportedModel | None
    error: RunError | None


@dataclass(frozen=True, slots=True)
class MemoryEstimated:
    """What the run takes, now that its model and prompts are loaded; where it is too much, the failure comes
    next.
    """

    estimate: MemoryEstimate


JournalEntry: TypeAlias = (
    RunStateChanged
    | StepCompleted
    | CheckpointSaved
    | CheckpointRemoved
    | CompletionsWritten
    | EvaluationFinished
    | LogLine
    | PreflightFinished
    | ModelExported
    | MemoryEstimated
)
