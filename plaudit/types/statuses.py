"""Statuses of training jobs and states of runs: one set of words in protos, REST, CLI, store and console."""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class JobStatus(StrEnum):
    """Where a training job stands. The gateway's transition table says what may follow what."""

    QUEUED = "queued"
    PROVISIONING = "provisioning"
    CONFIGURING = "configuring"
    RUNNING = "running"
    PAUSING = "pausing"
    PAUSED = "paused"
    CANCELLING = "cancelling"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_terminal(self) -> bool:
        """Whether a watcher has seen the end: completed, failed or cancelled."""
        return self in (JobStatus.COMPLETED, JobStatus.FAILED, JobStatus.CANCELLED)

    @property
    def holds_trainer(self) -> bool:
        """Whether a run of the job may exist on a trainer."""
        return self in (
            JobStatus.PROVISIONING,
            JobStatus.CONFIGURING,
            JobStatus.RUNNING,
            JobStatus.PAUSING,
            JobStatus.CANCELLING,
        )


class RunState(StrEnum):
    """Where a run, one attempt of a job on one trainer, stands."""

    STARTING = "starting"
    RUNNING = "running"
    PAUSING = "pausing"
    PAUSED = "paused"
    CANCELLING = "cancelling"
    CANCELLED = "cancelled"
    COMPLETED = "completed"
    FAILED = "failed"

    @property
    def is_terminal(self) -> bool:
        """Whether the run is over; its journal then ends."""
        return self in (RunState.PAUSED, RunState.CANCELLED, RunState.COMPLETED, RunState.FAILED)


class ErrorCode(StrEnum):
    """Why a run or a job failed, for programs."""

    OUT_OF_MEMORY = "out_of_memory"
    CONFIG_ERROR = "config_error"
    DATASET_ERROR = "dataset_error"
    MODEL_ERROR = "model_error"
    REWARD_UNAVAILABLE = "reward_unavailable"
    PREFLIGHT_FAILED = "preflight_failed"
    NON_FINITE_LOSS = "non_finite_loss"
    TRAINING_ERROR = "training_error"
    PROCESS_DIED = "process_died"
    TRAINER_LOST = "trainer_lost"
    HEARTBEAT_TIMEOUT = "heartbeat_timeout"
    """The client that owned the job gave no sign of life any more; the job is cancelled."""


EVALUATING: Final = "evaluating after step"
"""How a run's status_detail begins while it is evaluated; what follows counts up, and is no event."""
