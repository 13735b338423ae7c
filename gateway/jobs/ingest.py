"""Takes the entries of runs' journals into the store: each once, with all that follows from it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from datetime import datetime
from pathlib import Path
from typing import Final

from gateway.events import Alert, CheckpointSaved, LogLine, StepMetrics
from gateway.jobs import lifecycle
from gateway.jobs.alerts import AlertWatch
from gateway.jobs.checkpoint_files import is_gone
from gateway.jobs.job import JobError, checkpoint_id
from gateway.jobs.journal import (
    CheckpointRemoved,
    CheckpointWritten,
    CompletionsWritten,
    EvaluationFinished,
    JournalEntry,
    LogRecord,
    MemoryEstimated,
    ModelExported,
    PreflightFinished,
    RunStateChanged,
    StepCompleted,
    UnknownEntry,
)
from gateway.models.records import final_model
from gateway.store import Session, Store
from gateway.store.attempts import on_line
from gateway.store.checkpoints import CheckpointRecord
from gateway.store.completions import CompletionFile
from gateway.store.jobs import JobRecord
from gateway.store.runs import RunPhase, RunRecord
from plaudit.errors import InternalError

_KINDS: Final[dict[type, str]] = {
    RunStateChanged: "state_changed",
    StepCompleted: "step_completed",
    CheckpointWritten: "checkpoint_saved",
    CheckpointRemoved: "checkpoint_removed",
    CompletionsWritten: "completions_written",
    EvaluationFinished: "evaluation_finished",
    LogRecord: "log_line",
    PreflightFinished: "preflight_finished",
    ModelExported: "model_exported",
    MemoryEstimated: "memory_estimated",
    UnknownEntry: "unknown",
}
_LOG_LEVELS: Final = {"debug": "debug", "info": "info", "warning": "warning", "warn": "warning"}


async def ingest(
    store: Store,
    artifact_root: Path,
    run_id: str,
    entries: Sequence[JournalEntry],
    *,
    on_stop: Callable[[], None] = lambda: None,
) -> RunRecord:
    """Stores consecutive entries of a run in one transaction, and returns the run as it is then.

    Entries that are stored already are passed over. Only the run that a job holds now moves the job and is
    told to watchers; what an older attempt still reports is kept under its attempt. Raises InternalError
    (reason JOURNAL_GAP) where an entry is missing between what is stored and what came. `on_stop` is called
    where an alert asks the run to pause, once that is stored.
    """
    async with store.transaction() as session:
        run = await session.runs.find(run_id)
        assert run is not None
        fresh = [entry for entry in entries if entry.sequence > run.last_sequence]
        if not fresh:
            return run
        _check_gapless(run, fresh)
        record = await session.jobs.find_by_key(run.job_key)
        assert record is not None
        state = run.state
        stopped_before = record.stop_reason
        alerts = AlertWatch(session, run.job_key)
        for entry in fresh:
            await _keep(session, run, entry)
            if record.run_id == run.id:
                record = await _tell(session, artifact_root, run, record, entry)
                if isinstance(entry.event, StepCompleted):
                    record = await alerts.after_step(
                        record, entry.event.step, entry.event.metrics, entry.time
                    )
                if isinstance(entry.event, EvaluationFinished):
                    record = await alerts.after_evaluation(
                        record, entry.event.step, entry.event.metrics, entry.time
                    )
            if isinstance(entry.event, RunStateChanged):
                state = entry.event.state
        await session.runs.append_journal(
            run, [(entry.sequence, _KINDS[type(entry.event)], entry.time) for entry in fresh], state
        )
        phase = RunPhase.ENDED if state is not None and state.is_terminal else RunPhase.STARTED
        if run.phase in (RunPhase.ASSIGNED, RunPhase.STARTED):
            await session.runs.set_phase(run.id, phase)
        run = replace(run, last_sequence=fresh[-1].sequence, state=state, phase=phase)
    if record.stop_reason != stopped_before:
        on_stop()
    return run


def _check_gapless(run: RunRecord, entries: Sequence[JournalEntry]) -> None:
    expected = range(run.last_sequence + 1, run.last_sequence + 1 + len(entries))
    for entry, sequence in zip(entries, expected, strict=True):
        if entry.sequence != sequence:
            raise InternalError(
                f"the journal of run {run.id} goes from entry {sequence - 1} to {entry.sequence}: entries "
                "are missing",
                reason="JOURNAL_GAP",
            )


async def _keep(session: Session, run: RunRecord, entry: JournalEntry) -> None:
    """What is kept of an entry whichever attempt it is from."""
    match entry.event:
        case StepCompleted(step=step, metrics=metrics):
            await session.points.insert(run.job_key, run.attempt, step, metrics)
        case CheckpointWritten(step=step, uri=uri, size_bytes=size_bytes, sha256=sha256):
            await session.checkpoints.insert(
                run.job_key, CheckpointRecord(run.attempt, step, uri, size_bytes, sha256, entry.time)
            )
        case CheckpointRemoved(uri=uri):
            await session.checkpoints.mark_removed(run.job_key, uri, entry.time)
        case CompletionsWritten(
            step=step, uri=uri, row_count=row_count, size_bytes=size_bytes, sha256=sha256
        ):
            await session.completion_files.insert(
                run.job_key, CompletionFile(run.attempt, step, uri, row_count, size_bytes, sha256)
            )
        case EvaluationFinished(step=step, metrics=metrics, completions=written):
            attempt = await _attempt_with(session, run, step)
            await session.points.insert(run.job_key, attempt, step, metrics)
            if written is not None:
                await session.evaluation_files.insert(run.job_key, CompletionFile(attempt, **asdict(written)))


async def _attempt_with(session: Session, run: RunRecord, step: int) -> int:
    """The attempt to which an evaluation after `step` belongs: where it was owed by the checkpoint from which
    the run has started, the one that has the step itself.
    """
    if not 0 < step == run.from_step:
        return run.attempt
    line = await session.runs.line(run.job_key)
    return next((s.attempt for s in line if on_line([s], s.attempt, step)), run.attempt)


async def _tell(
    session: Session, artifact_root: Path, run: RunRecord, before: JobRecord, entry: JournalEntry
) -> JobRecord:
    """Moves the job by an entry of the run that it holds, and tells watchers."""
    job, time = before.job, entry.time
    match entry.event:
        case RunStateChanged(state=state, error=JobError() as error) if await _lost_its_checkpoint(
            artifact_root, run, before
        ):
            after = lifecycle.after_loss(before, error, time)
        case RunStateChanged(state=state, error=error, reason=reason):
            after = lifecycle.after_run_state(before, state, time, reason=reason, error=error)
        case StepCompleted(step=step, total_steps=total_steps, metrics=metrics):
            await session.events.append(
                before.key, job.id, StepMetrics(step, run.attempt, metrics, total_steps), time
            )
            after = replace(
                before,
                job=replace(
                    job,
                    current_step=step,
                    total_steps=total_steps or job.total_steps,
                    metrics={**job.metrics, **metrics},
                ),
            )
        case EvaluationFinished(step=step, metrics=metrics):
            await session.events.append(before.key, job.id, StepMetrics(step, run.attempt, metrics), time)
            after = replace(before, job=replace(job, metrics={**job.metrics, **metrics}))
        case CheckpointWritten(step=step, size_bytes=size_bytes):
            name = checkpoint_id(job.id, step)
            await session.events.append(before.key, job.id, CheckpointSaved(name, step, size_bytes), time)
            after = replace(before, deaths=0, job=replace(job, latest_checkpoint_id=name))
        case CheckpointRemoved():
            newest = await session.checkpoints.newest(before.key, await session.runs.line(before.key))
            name = checkpoint_id(job.id, newest.step) if newest else ""
            after = replace(before, job=replace(job, latest_checkpoint_id=name))
        case PreflightFinished(report=report):
            for found in report.findings:
                alert = Alert(found.kind, found.severity, found.message, 0, found.evidence)
                await session.events.append(before.key, job.id, alert, time)
            after = replace(before, job=replace(job, preflight=report))
        case MemoryEstimated(estimate=estimate):
            line = LogLine("info", f"memory: {estimate.describe()}", estimate.model_dump_json())
            await session.events.append(before.key, job.id, line, time)
            await session.jobs.note_memory(before.key, estimate)
            return replace(before, job=replace(job, memory=estimate))
        case ModelExported():
            await _tell_model(session, run, before, entry.event, time)
            return before
        case LogRecord(record_json=record_json):
            await session.events.append(before.key, job.id, _log_line(record_json), time)
            return before
        case _:
            return before
    return await lifecycle.save(session, before, after, time)


async def _tell_model(
    session: Session, run: RunRecord, record: JobRecord, told: ModelExported, time: datetime
) -> None:
    """Keeps the job's model, or why there is none, and tells watchers."""
    job = record.job
    model = final_model(record, run.attempt, told, time)
    await session.models.insert(record.key, model)
    if told.error is not None:
        text = f"the job has no model: {told.error.message}"
        await session.events.append(
            record.key, job.id, Alert("export_failed", "warning", text, told.step, {}), time
        )
    else:
        what = f"{model.kind}, {model.dtype}, {model.size_bytes:,} bytes"
        text = f"the model {model.name} can be downloaded ({what})"
        await session.events.append(record.key, job.id, LogLine("info", text), time)


async def _lost_its_checkpoint(artifact_root: Path, run: RunRecord, record: JobRecord) -> bool:
    """Whether the run came to no step of its own, and what it was to start from was removed.

    An older attempt that still ran on a trainer out of reach may have done that; an older checkpoint, or the
    base model, is another start.
    """
    return (
        run.checkpoint_uri != ""
        and record.job.current_step <= run.from_step
        and await asyncio.to_thread(is_gone, artifact_root, run.checkpoint_uri)
    )


def _log_line(record_json: str) -> LogLine:
    """A structlog record as a line: its level, its text, and other fields. What is none stays as it is."""
    try:
        fields = json.loads(record_json)
    except ValueError:
        fields = None
    if not isinstance(fields, dict):
        return LogLine("info", record_json)
    level = _LOG_LEVELS.get(str(fields.pop("level", "info")), "error")
    message = str(fields.pop("event", fields.pop("message", "")))
    return LogLine(level, message, json.dumps(fields))
