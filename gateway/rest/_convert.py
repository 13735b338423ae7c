"""The domain to REST's objects."""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any, Final

from gateway.datasets import RowPreview
from gateway.events import (
    Alert,
    AttemptStarted,
    Bookmark,
    CheckpointSaved,
    Event,
    LogLine,
    Payload,
    StatusChanged,
    StepMetrics,
)
from gateway.jobs.completions import RewardOutcome, ScoredCompletion
from gateway.jobs.job import Job, JobError
from gateway.jobs.ports import OfferedReward
from gateway.jobs.series import MetricSeries
from gateway.rest import objects
from gateway.rewards import LiveRewardServer, ReplicaHealth
from gateway.store.datasets import StoredDataset
from plaudit.types.access import TlsAccess
from plaudit.types.metrics import LOSS
from plaudit.types.statuses import ErrorCode, JobStatus

_ERROR_WORDS: Final = {ErrorCode.OUT_OF_MEMORY.value: "oom"}
"""Codes for which existing REST clients have a word of their own."""

_LEVELS: Final[dict[str, objects.Level]] = {
    "debug": "info",
    "info": "info",
    "warning": "warn",
    "error": "error",
    "critical": "error",
}


def job_object(job: Job, download_url: str | None = None) -> objects.TrainingJobObject:
    """A job; `download_url` is that of its model's weights."""
    end = job.finished_at or datetime.now(UTC)
    return objects.TrainingJobObject(
        id=job.id,
        status=job.status.value,
        status_detail=job.status_detail,
        error=_error(job.error),
        base_model=job.spec.base_model,
        dataset_id=job.spec.dataset_id,
        output_name=job.spec.output_name,
        method=job.spec.method,
        hyperparameters=job.spec.hyperparameters.model_dump(mode="json"),
        rewards=[binding.model_dump(mode="json") for binding in job.spec.rewards],
        reward_count=len(job.spec.rewards),
        resume_from=job.spec.resume_from,
        attempt=job.attempt,
        current_step=job.current_step,
        total_steps=job.total_steps or None,
        metrics=dict(job.metrics),
        current_loss=job.metrics.get(LOSS),
        latest_checkpoint_id=job.latest_checkpoint_id or None,
        model_id=job.model_id or None,
        download_url=download_url,
        preflight=job.spec.preflight,
        preflight_report=job.preflight,
        alerts=[objects.JobAlertObject(**asdict(alert)) for alert in job.alerts],
        memory=job.memory,
        requires_heartbeat=job.requires_heartbeat,
        created_by=job.created_by or None,
        gpu_requested=objects.GpuObject(**asdict(job.gpu_requested)) if job.gpu_requested else None,
        created_at=job.created_at,
        updated_at=job.updated_at,
        started_at=job.started_at,
        completed_at=job.finished_at,
        duration_seconds=(end - job.started_at).total_seconds() if job.started_at else None,
    )


def metrics_object(series: MetricSeries) -> objects.MetricsObject:
    """Metric series."""
    return objects.MetricsObject(
        metrics=[
            objects.MetricRow(step=row.step, attempt=row.attempt, values=dict(row.values))
            for row in series.rows
        ],
        available_keys=list(series.available_keys),
        latest_step=series.latest_step,
    )


def completion_object(completion: ScoredCompletion) -> objects.CompletionObject:
    """A scored completion."""
    return objects.CompletionObject(
        id=completion.completion_id,
        step=completion.step,
        attempt=completion.attempt,
        group_id=completion.group_id,
        prompt_text=completion.prompt_text,
        completion_text=completion.completion_text,
        token_count=completion.token_count,
        truncated=completion.truncated,
        reward=completion.reward,
        advantage=completion.advantage,
        outcomes=[outcome_object(outcome) for outcome in completion.outcomes],
    )


def dataset_object(dataset: StoredDataset) -> objects.DatasetObject:
    """A dataset."""
    return objects.DatasetObject(
        id=dataset.id,
        name=dataset.name,
        source_type=dataset.source_type,
        source_uri=dataset.source.uri if dataset.source else None,
        huggingface_dataset=dataset.source.huggingface_dataset if dataset.source else None,
        num_rows=dataset.row_count,
        columns=list(dataset.columns),
        methods=list(dataset.methods),
        size_bytes=dataset.size_bytes,
        sha256=dataset.sha256,
        created_at=dataset.created_at,
    )


def dataset_row_object(row: RowPreview) -> objects.DatasetRowObject:
    """A row of a dataset: its columns beside the prompt, as they stood in the file."""
    return objects.DatasetRowObject(row_number=row.number, prompt=row.prompt, columns=row.columns)


def reward_server_object(live: LiveRewardServer) -> objects.RewardServerObject:
    """A reward server, and what it answers."""
    return objects.RewardServerObject(
        id=live.server.id,
        name=live.server.name,
        addresses=list(live.server.addresses),
        configured=live.server.configured,
        reachable=live.description.reachable,
        unreachable_reason=live.description.unreachable_reason or None,
        server_version=live.description.server_version or None,
        rewards=[_offered(reward) for reward in live.description.rewards],
        tls=_tls(live.server.access.tls),
        credential=live.server.access.credential,
        plaintext=live.server.access.plaintext,
        replicas=[_replica(replica) for replica in live.replicas],
        warnings=list(live.description.warnings),
        created_at=live.server.created_at,
    )


def watched_event(event: Event) -> objects.WatchedEvent:
    """An event as it is streamed."""
    return objects.WatchedEvent.model_validate(
        {
            "cursor": event.cursor,
            "event_time": event.time,
            "job_id": event.job_id or None,
            "kind": event.kind,
            event.kind: _fields(event.payload),
        }
    )


def event_object(event: Event) -> objects.EventObject:
    """An event as an entry of a job's log."""
    level, message = _told(event.payload)
    payload = event.payload
    metadata = _log_fields(payload) if isinstance(payload, LogLine) else _fields(payload)
    return objects.EventObject(
        id=event.cursor,
        job_id=event.job_id,
        level=level,
        event_type=event.kind,
        message=message,
        metadata=metadata,
        created_at=event.time,
    )


def _told(payload: Payload | Bookmark) -> tuple[objects.Level, str]:
    match payload:
        case StatusChanged(status, detail, error):
            told = error.message if error else detail
            level: objects.Level = "error" if status is JobStatus.FAILED else "info"
            return level, f"{status.value}: {told}" if told else status.value
        case CheckpointSaved(_, step, _):
            return "info", f"checkpoint after step {step}"
        case AttemptStarted(attempt, from_step):
            start = f"the checkpoint after step {from_step}" if from_step else "the base model"
            return "info", f"attempt {attempt} starts from {start}"
        case Alert(_, severity, text):
            return _LEVELS.get(severity, "warn"), text
        case LogLine(line_level, text, _):
            return _LEVELS.get(line_level, "info"), text
        case StepMetrics(step):
            return "info", f"step {step}"
        case Bookmark():
            return "info", "nothing happened"


def _fields(payload: Payload | Bookmark) -> dict[str, Any]:
    fields = asdict(payload)
    if isinstance(payload, StatusChanged):
        fields["error"] = _error(payload.error)
    return fields


def _log_fields(line: LogLine) -> dict[str, Any]:
    try:
        fields = json.loads(line.fields_json)
    except ValueError:
        fields = None
    # A run writes this text, and may have written anything.
    return fields if isinstance(fields, dict) else {"fields_json": line.fields_json}


def _error(error: JobError | None) -> objects.ErrorOfJob | None:
    if error is None:
        return None
    return objects.ErrorOfJob(code=_ERROR_WORDS.get(error.code, error.code), message=error.message)


def outcome_object(outcome: RewardOutcome) -> objects.OutcomeObject:
    """What one reward said of a completion."""
    return objects.OutcomeObject(
        name=outcome.name,
        status=outcome.status,
        value=outcome.value,
        explanation=outcome.explanation,
        scored_at=outcome.scored_at,
    )


def _offered(reward: OfferedReward) -> objects.OfferedRewardObject:
    return objects.OfferedRewardObject(
        name=reward.name,
        description=reward.description,
        min_value=reward.min_value,
        max_value=reward.max_value,
        required_columns=list(reward.required_columns),
        config_schema=None if reward.config_schema is None else dict(reward.config_schema),
        problem=reward.problem or None,
    )


def _tls(tls: TlsAccess | None) -> objects.TlsObject | None:
    if tls is None:
        return None
    return objects.TlsObject(
        ca=tls.ca, client_certificate=tls.client_certificate, server_name=tls.server_name
    )


def _replica(replica: ReplicaHealth) -> objects.ReplicaObject:
    return objects.ReplicaObject(
        address=replica.address,
        state=replica.state.value,
        reason=replica.reason or None,
        since=replica.since,
        checked_at=replica.checked_at,
        server_version=replica.server_version or None,
        latency_seconds=replica.latency_seconds,
    )
