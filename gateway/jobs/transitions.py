"""What may follow what: the life of a job as a table, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from plaudit.types.statuses import JobStatus, RunState


class JobEvent(StrEnum):
    """What can move a job: a caller, the scheduler, its run, or the loss of the run."""

    PAUSE = "pause"
    CANCEL = "cancel"
    RESUME = "resume"
    ASSIGNED = "assigned"
    """A trainer was chosen."""
    RUN_STARTING = "run_starting"
    RUN_RUNNING = "run_running"
    RUN_PAUSING = "run_pausing"
    RUN_PAUSED = "run_paused"
    RUN_CANCELLING = "run_cancelling"
    RUN_CANCELLED = "run_cancelled"
    """Also: it had not begun, and never will begin."""
    RUN_COMPLETED = "run_completed"
    RUN_FAILED = "run_failed"
    """It failed for a cause that would be there again."""
    RUN_LOST = "run_lost"
    """Its process died, or its trainer is lost: another run can go on from the newest checkpoint."""


_QUEUED = JobStatus.QUEUED
_PROVISIONING = JobStatus.PROVISIONING
_CONFIGURING = JobStatus.CONFIGURING
_RUNNING = JobStatus.RUNNING
_PAUSING = JobStatus.PAUSING
_PAUSED = JobStatus.PAUSED
_CANCELLING = JobStatus.CANCELLING
_COMPLETED = JobStatus.COMPLETED
_FAILED = JobStatus.FAILED
_CANCELLED = JobStatus.CANCELLED

_TABLE: Final[Mapping[JobEvent, Mapping[JobStatus, JobStatus]]] = {
    JobEvent.PAUSE: {
        _QUEUED: _PAUSED,
        _PROVISIONING: _PAUSING,
        _CONFIGURING: _PAUSING,
        _RUNNING: _PAUSING,
        _PAUSING: _PAUSING,
        _PAUSED: _PAUSED,
    },
    JobEvent.CANCEL: {
        _QUEUED: _CANCELLED,
        _PROVISIONING: _CANCELLING,
        _CONFIGURING: _CANCELLING,
        _RUNNING: _CANCELLING,
        _PAUSING: _CANCELLING,
        _PAUSED: _CANCELLED,
        _CANCELLING: _CANCELLING,
        _CANCELLED: _CANCELLED,
    },
    JobEvent.RESUME: {_PAUSED: _QUEUED, _FAILED: _QUEUED},
    JobEvent.ASSIGNED: {_QUEUED: _PROVISIONING},
    JobEvent.RUN_STARTING: {
        _PROVISIONING: _CONFIGURING,
        _CONFIGURING: _CONFIGURING,
        _PAUSING: _PAUSING,
        _CANCELLING: _CANCELLING,
    },
    JobEvent.RUN_RUNNING: {
        _PROVISIONING: _RUNNING,
        _CONFIGURING: _RUNNING,
        _RUNNING: _RUNNING,
        _PAUSING: _PAUSING,
        _CANCELLING: _CANCELLING,
    },
    JobEvent.RUN_PAUSING: {
        _PROVISIONING: _PAUSING,
        _CONFIGURING: _PAUSING,
        _RUNNING: _PAUSING,
        _PAUSING: _PAUSING,
        _CANCELLING: _CANCELLING,
    },
    JobEvent.RUN_PAUSED: {
        _PROVISIONING: _PAUSED,
        _CONFIGURING: _PAUSED,
        _RUNNING: _PAUSED,
        _PAUSING: _PAUSED,
        _CANCELLING: _CANCELLED,
    },
    JobEvent.RUN_CANCELLING: {
        _PROVISIONING: _CANCELLING,
        _CONFIGURING: _CANCELLING,
        _RUNNING: _CANCELLING,
        _PAUSING: _CANCELLING,
        _CANCELLING: _CANCELLING,
    },
    JobEvent.RUN_CANCELLED: {
        _PROVISIONING: _CANCELLED,
        _CONFIGURING: _CANCELLED,
        _RUNNING: _CANCELLED,
        # It was kept from starting, so that the job is paused without a checkpoint.
        _PAUSING: _PAUSED,
        _CANCELLING: _CANCELLED,
    },
    JobEvent.RUN_COMPLETED: {
        _PROVISIONING: _COMPLETED,
        _CONFIGURING: _COMPLETED,
        _RUNNING: _COMPLETED,
        _PAUSING: _COMPLETED,
        _CANCELLING: _COMPLETED,
    },
    JobEvent.RUN_FAILED: {
        _PROVISIONING: _FAILED,
        _CONFIGURING: _FAILED,
        _RUNNING: _FAILED,
        _PAUSING: _FAILED,
        _CANCELLING: _CANCELLED,
    },
    JobEvent.RUN_LOST: {
        _PROVISIONING: _QUEUED,
        _CONFIGURING: _QUEUED,
        _RUNNING: _QUEUED,
        _PAUSING: _PAUSED,
        _CANCELLING: _CANCELLED,
    },
}

RUN_EVENTS: Final[Mapping[RunState, JobEvent]] = {
    RunState.STARTING: JobEvent.RUN_STARTING,
    RunState.RUNNING: JobEvent.RUN_RUNNING,
    RunState.PAUSING: JobEvent.RUN_PAUSING,
    RunState.PAUSED: JobEvent.RUN_PAUSED,
    RunState.CANCELLING: JobEvent.RUN_CANCELLING,
    RunState.CANCELLED: JobEvent.RUN_CANCELLED,
    RunState.COMPLETED: JobEvent.RUN_COMPLETED,
    RunState.FAILED: JobEvent.RUN_FAILED,
}
"""What the state of a job's run means for the job; for FAILED the cause decides (RUN_FAILED or RUN_LOST)."""


def status_after(status: JobStatus, event: JobEvent) -> JobStatus | None:
    """The status that follows, which may be the same one; None where the status forbids the event."""
    return _TABLE[event].get(status)
