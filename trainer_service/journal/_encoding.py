"""Entries as they stand in the file: a kind, and JSON."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any, Final

from plaudit.types.memory import MemoryEstimate
from plaudit.types.preflight import PreflightReport
from plaudit.types.statuses import ErrorCode, RunState
from trainer_service.exported import ExportedModel
from trainer_service.journal._entries import (
    CheckpointRemoved,
    CheckpointSaved,
    CompletionsWritten,
    EvaluationFinished,
    JournalEntry,
    LogLine,
    MemoryEstimated,
    ModelExported,
    PreflightFinished,
    RunError,
    RunStateChanged,
    StepCompleted,
)

MAX_TEXT_LENGTH: Final = 16_384
"""Characters of a message in an entry; what is longer is cut, so that every entry fits a gRPC message."""

KINDS: Final[dict[type[JournalEntry], str]] = {
    RunStateChanged: "state_changed",
    StepCompleted: "step_completed",
    CheckpointSaved: "checkpoint_saved",
    CheckpointRemoved: "checkpoint_removed",
    CompletionsWritten: "completions_written",
    EvaluationFinished: "evaluation_finished",
    LogLine: "log_line",
    PreflightFinished: "preflight_finished",
    ModelExported: "model_exported",
    MemoryEstimated: "memory_estimated",
}
_CLASSES: Final = {kind: cls for cls, kind in KINDS.items()}


def is_terminal(entry: JournalEntry) -> bool:
    return isinstance(entry, RunStateChanged) and entry.state.is_terminal


def encode(entry: JournalEntry) -> str:
    if isinstance(entry, StepCompleted):
        # A metric may be a scalar of an array library.
        metrics = {name: float(value) for name, value in entry.metrics.items()}
        return json.dumps({"step": entry.step, "total_steps": entry.total_steps, "metrics": metrics})
    if isinstance(entry, EvaluationFinished):
        values = {name: float(value) for name, value in entry.metrics.items()}
        return json.dumps({**asdict(entry), "metrics": values})
    if isinstance(entry, LogLine):
        fields = json.dumps(dict(entry.fields), default=str)
        if len(fields) > MAX_TEXT_LENGTH:
            fields = json.dumps({"fields_left_out": f"{len(fields)} characters"})
        return json.dumps(
            {"level": entry.level, "message": _cut(entry.message), "fields": json.loads(fields)}
        )
    if isinstance(entry, RunStateChanged):
        error = entry.error
        return json.dumps(
            {
                "state": entry.state,
                "error": None if error is None else {"code": error.code, "message": _cut(error.message)},
                "reason": _cut(entry.reason),
            }
        )
    if isinstance(entry, PreflightFinished):
        return entry.report.model_dump_json()
    if isinstance(entry, MemoryEstimated):
        return entry.estimate.model_dump_json()
    return json.dumps(asdict(entry))


def decode(kind: str, body: str) -> JournalEntry:
    if kind == "preflight_finished":
        return PreflightFinished(PreflightReport.model_validate_json(body))
    if kind == "memory_estimated":
        return MemoryEstimated(MemoryEstimate.model_validate_json(body))
    values: dict[str, Any] = json.loads(body)
    if kind == "state_changed":
        return RunStateChanged(RunState(values["state"]), _error(values["error"]), values["reason"])
    if kind == "evaluation_finished":
        written = values["completions"]
        return EvaluationFinished(
            values["step"], values["metrics"], None if written is None else CompletionsWritten(**written)
        )
    if kind == "model_exported":
        model = values["model"]
        return ModelExported(
            values["step"], None if model is None else ExportedModel.of(model), _error(values["error"])
        )
    return _CLASSES[kind](**values)


def _error(values: dict[str, Any] | None) -> RunError | None:
    return None if values is None else RunError(ErrorCode(values["code"]), values["message"])


def _cut(text: str) -> str:
    if len(text) <= MAX_TEXT_LENGTH:
        return text
    return f"{text[:MAX_TEXT_LENGTH]}… ({len(text) - MAX_TEXT_LENGTH} characters left out)"
