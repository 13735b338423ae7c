"""A run's journal: what happened, in order, on disk before anybody is told of it."""

from trainer_service.journal._encoding import MAX_TEXT_LENGTH
from trainer_service.journal._entries import (
    CheckpointRemoved,
    CheckpointSaved,
    CompletionsWritten,
    EvaluationFinished,
    JournalEntry,
    LogLevel,
    LogLine,
    MemoryEstimated,
    ModelExported,
    PreflightFinished,
    RunError,
    RunStateChanged,
    StepCompleted,
)
from trainer_service.journal._store import (
    Finish,
    JournalError,
    JournalReader,
    JournalRecord,
    JournalSnapshot,
    JournalWriter,
)

__all__ = [
    "MAX_TEXT_LENGTH",
    "CheckpointRemoved",
    "CheckpointSaved",
    "CompletionsWritten",
    "EvaluationFinished",
    "Finish",
    "JournalEntry",
    "JournalError",
    "JournalReader",
    "JournalRecord",
    "JournalSnapshot",
    "JournalWriter",
    "LogLevel",
    "LogLine",
    "MemoryEstimated",
    "ModelExported",
    "PreflightFinished",
    "RunError",
    "RunStateChanged",
    "StepCompleted",
]
