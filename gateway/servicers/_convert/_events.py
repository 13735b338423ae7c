"""What happens to a job: events, metric series, scored completions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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
from gateway.jobs.series import MetricSeries
from gateway.servicers._convert._jobs import status_to_proto
from gateway.servicers._convert._values import error_to_proto, time_to_proto
from plaudit.gateway.v1 import training_job_service_pb2


def event_to_proto(event: Event) -> training_job_service_pb2.TrainingJobEvent:
    """An event; made once for all who get it."""
    message: training_job_service_pb2.TrainingJobEvent | None = event.forms.get("proto")
    if message is None:
        message = training_job_service_pb2.TrainingJobEvent(
            cursor=event.cursor,
            event_time=time_to_proto(event.time),
            job_id=event.job_id,
            **_payload_to_proto(event.payload),
        )
        event.forms["proto"] = message
    return message


def series_to_proto(series: MetricSeries) -> training_job_service_pb2.GetTrainingJobMetricsResponse:
    """Metric series."""
    return training_job_service_pb2.GetTrainingJobMetricsResponse(
        metrics=[_step_to_proto(row) for row in series.rows],
        available_keys=series.available_keys,
        latest_step=series.latest_step,
    )


def completion_to_proto(completion: ScoredCompletion) -> training_job_service_pb2.ScoredCompletion:
    """A scored completion."""
    return training_job_service_pb2.ScoredCompletion(
        step=completion.step,
        attempt=completion.attempt,
        group_id=completion.group_id,
        completion_id=completion.completion_id,
        prompt_text=completion.prompt_text,
        completion_text=completion.completion_text,
        token_count=completion.token_count,
        truncated=completion.truncated,
        reward=completion.reward,
        advantage=completion.advantage,
        outcomes=[outcome_to_proto(outcome) for outcome in completion.outcomes],
    )


def outcome_to_proto(outcome: RewardOutcome) -> training_job_service_pb2.RewardOutcome:
    """Outcome of one reward."""
    return training_job_service_pb2.RewardOutcome(
        name=outcome.name,
        value=outcome.value,
        explanation=outcome.explanation,
        status=outcome.status,
        scored_at=time_to_proto(outcome.scored_at),
    )


def _payload_to_proto(payload: Payload | Bookmark) -> Mapping[str, Any]:
    """The one field of TrainingJobEvent's oneof that holds `payload`."""
    match payload:
        case StatusChanged(status, detail, error):
            message = training_job_service_pb2.StatusChanged(
                status=status_to_proto(status), detail=detail, error=error_to_proto(error)
            )
            return {"status_changed": message}
        case StepMetrics():
            return {"step_metrics": _step_to_proto(payload)}
        case CheckpointSaved(checkpoint_id, step, size_bytes):
            return {
                "checkpoint_saved": training_job_service_pb2.CheckpointSaved(
                    checkpoint_id=checkpoint_id, step=step, size_bytes=size_bytes
                )
            }
        case Alert(kind, severity, text, step, evidence):
            return {
                "alert": training_job_service_pb2.Alert(
                    kind=kind, severity=severity, message=text, step=step, evidence=dict(evidence)
                )
            }
        case LogLine(level, text, fields_json):
            return {
                "log_line": training_job_service_pb2.LogLine(
                    level=level, message=text, fields_json=fields_json
                )
            }
        case AttemptStarted(attempt, from_step):
            return {
                "attempt_started": training_job_service_pb2.AttemptStarted(
                    attempt=attempt, from_step=from_step
                )
            }
        case Bookmark():
            return {"bookmark": training_job_service_pb2.Bookmark()}


def _step_to_proto(step: StepMetrics) -> training_job_service_pb2.StepMetrics:
    return training_job_service_pb2.StepMetrics(
        step=step.step, attempt=step.attempt, values=dict(step.values), total_steps=step.total_steps
    )
