"""Training jobs."""

from __future__ import annotations

from typing import Any, Literal

from gateway.rest.objects._base import Listed, RestObject, Time
from plaudit.types.memory import MemoryEstimate
from plaudit.types.preflight import PreflightMode, PreflightReport


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
    memory: MemoryEstimate | None
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


class JobList(Listed[TrainingJobObject]):
    """A page of jobs, newest first; `after=<last id>` asks for the next."""
