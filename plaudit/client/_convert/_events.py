"""What happens to a job: events, metric series, scored completions."""

from __future__ import annotations

from plaudit.client import models
from plaudit.client._convert._jobs import status_from_proto
from plaudit.client._convert._reading import reads_answer
from plaudit.client._convert._values import error_from_proto, time_from_proto, utc
from plaudit.gateway.v1 import training_job_service_pb2 as service_pb2


@reads_answer
def event_from_proto(message: service_pb2.TrainingJobEvent) -> models.JobEvent | None:
    """An event, or None for a kind that this SDK does not know yet."""
    body = _event_body(message)
    if body is None:
        return None
    return models.JobEvent(message.cursor, message.job_id, utc(message.event_time), body)


@reads_answer
def series_from_proto(message: service_pb2.GetTrainingJobMetricsResponse) -> models.MetricSeries:
    """Metric series."""
    return models.MetricSeries(
        metrics=tuple(_step_metrics(row) for row in message.metrics),
        available_keys=tuple(message.available_keys),
        latest_step=message.latest_step,
    )


@reads_answer
def completion_from_proto(message: service_pb2.ScoredCompletion) -> models.ScoredCompletion:
    """A scored completion."""
    return models.ScoredCompletion(
        step=message.step,
        attempt=message.attempt,
        group_id=message.group_id,
        completion_id=message.completion_id,
        prompt_text=message.prompt_text,
        completion_text=message.completion_text,
        token_count=message.token_count,
        truncated=message.truncated,
        reward=message.reward if message.HasField("reward") else None,
        advantage=message.advantage if message.HasField("advantage") else None,
        outcomes=tuple(map(outcome_from_proto, message.outcomes)),
    )


def outcome_from_proto(message: service_pb2.RewardOutcome) -> models.RewardOutcome:
    """Outcome of one reward."""
    return models.RewardOutcome(
        name=message.name,
        value=message.value if message.HasField("value") else None,
        status=message.status,
        explanation=message.explanation,
        scored_at=time_from_proto(message, "scored_at"),
    )


def _event_body(message: service_pb2.TrainingJobEvent) -> models.EventBody | None:
    match message.WhichOneof("event"):
        case "status_changed":
            change = message.status_changed
            error = error_from_proto(change.error) if change.HasField("error") else None
            return models.StatusChanged(status_from_proto(change.status), change.detail, error)
        case "step_metrics":
            return _step_metrics(message.step_metrics)
        case "checkpoint_saved":
            saved = message.checkpoint_saved
            return models.CheckpointSaved(saved.checkpoint_id, saved.step, saved.size_bytes)
        case "alert":
            alert = message.alert
            return models.Alert(alert.kind, alert.severity, alert.message, alert.step, dict(alert.evidence))
        case "log_line":
            line = message.log_line
            return models.LogLine(line.level, line.message, line.fields_json)
        case "attempt_started":
            return models.AttemptStarted(message.attempt_started.attempt, message.attempt_started.from_step)
        case "bookmark":
            return models.Bookmark()
        case _:
            return None


def _step_metrics(message: service_pb2.StepMetrics) -> models.StepMetrics:
    return models.StepMetrics(message.step, message.attempt, dict(message.values), message.total_steps)
