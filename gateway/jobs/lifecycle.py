"""Moves jobs along the table, within the transaction of whoever learnt of it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Final

from gateway.events import StatusChanged
from gateway.jobs.job import JobError
from gateway.jobs.transitions import RUN_EVENTS, JobEvent, status_after
from gateway.store import Session
from gateway.store.jobs import JobRecord
from plaudit.errors import FailedPreconditionError
from plaudit.types.statuses import ErrorCode, JobStatus, RunState

MAX_RESTARTS: Final = 3
"""Runs that are started in place of lost ones before a new checkpoint shows that it is worth it."""

_RESTARTED: Final = frozenset({ErrorCode.PROCESS_DIED, ErrorCode.TRAINER_LOST})
"""Causes that another run may not meet. All others would be there again."""

_WAYS_OUT: Final = {
    JobEvent.PAUSE: "only a job that is neither over nor about to be can be paused",
    JobEvent.RESUME: "only a paused or failed job can be resumed",
    JobEvent.CANCEL: "only a job that is not over can be cancelled",
}


async def save(session: Session, before: JobRecord, after: JobRecord, time: datetime) -> JobRecord:
    """Writes a job as it is now, and, where a reader would see a difference, the status event of `time`."""
    record = replace(after, job=replace(after.job, updated_at=datetime.now(UTC)))
    await session.jobs.save(record)
    job = record.job
    if (job.status, job.status_detail, job.error) != (
        before.job.status,
        before.job.status_detail,
        before.job.error,
    ):
        await session.events.append(
            record.key, job.id, StatusChanged(job.status, job.status_detail, job.error), time
        )
    return record


async def ask(session: Session, record: JobRecord, event: JobEvent, time: datetime) -> JobRecord:
    """What a caller asked for. Raises FailedPreconditionError (reason STATUS_FORBIDS) by the table."""
    status = status_after(record.job.status, event)
    if status is None:
        raise FailedPreconditionError(
            f"job {record.job.id} is {record.job.status}: {_WAYS_OUT[event]}", reason="STATUS_FORBIDS"
        )
    if status is record.job.status:
        return record
    after = moved(record, status, time)
    if event is JobEvent.RESUME:
        after = replace(after, deaths=0)
    return await save(session, record, after, time)


def moved(
    record: JobRecord, status: JobStatus, time: datetime, *, detail: str = "", error: JobError | None = None
) -> JobRecord:
    """The job with another status, and what goes with it."""
    job = record.job
    if status is JobStatus.CANCELLED:
        # Why it was cancelled, where nobody asked for it.
        error = error or job.error
    started_at = job.started_at
    if started_at is None and status is JobStatus.RUNNING:
        started_at = time
    stays_stopped = status in (JobStatus.PAUSING, JobStatus.PAUSED)
    return replace(
        record,
        run_id=record.run_id if status.holds_trainer else None,
        stop_reason=record.stop_reason if stays_stopped else "",
        job=replace(
            job,
            status=status,
            status_detail=detail,
            error=error,
            started_at=started_at,
            finished_at=time if status.is_terminal else None,
        ),
    )


def after_run_state(
    record: JobRecord, state: RunState, time: datetime, *, reason: str = "", error: JobError | None = None
) -> JobRecord:
    """The job after its run came to `state`. `reason` is why it paused, `error` why it failed."""
    if state is RunState.FAILED:
        cause = error or JobError(ErrorCode.TRAINING_ERROR, "the trainer gave no cause")
        return after_loss(record, cause, time) if cause.code in _RESTARTED else _failed(record, cause, time)
    status = status_after(record.job.status, RUN_EVENTS[state])
    if status is None or status is record.job.status:
        return record
    if status is JobStatus.PAUSED:
        reason = record.stop_reason or reason
    return moved(record, status, time, detail=reason)


def stopped(record: JobRecord, reason: str, time: datetime) -> JobRecord:
    """The job after an alert that is to pause it; as it was where it does not run, or pauses already."""
    if record.job.status is not JobStatus.RUNNING:
        return record
    return moved(replace(record, stop_reason=reason), JobStatus.PAUSING, time, detail=reason)


def after_loss(record: JobRecord, cause: JobError, time: datetime) -> JobRecord:
    """The job after its run was lost: queued for another run, unless that was tried often enough."""
    status = status_after(record.job.status, JobEvent.RUN_LOST)
    if status is None:
        return record
    record = replace(record, deaths=record.deaths + 1)
    if status is not JobStatus.QUEUED:
        reasons = (record.stop_reason, cause.message) if status is JobStatus.PAUSED else ()
        return moved(record, status, time, detail="; ".join(filter(None, reasons)))
    if record.deaths > MAX_RESTARTS:
        gave_up = f"{cause.message}; {record.deaths} runs in a row ended so without a new checkpoint"
        return _failed(record, JobError(cause.code, gave_up), time)
    return moved(record, status, time, detail=f"attempt {record.job.attempt} was lost: {cause.message}")


def _failed(record: JobRecord, error: JobError, time: datetime) -> JobRecord:
    status = status_after(record.job.status, JobEvent.RUN_FAILED)
    if status is None:
        return record
    return moved(record, status, time, error=error if status is JobStatus.FAILED else None)
