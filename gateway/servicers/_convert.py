"""Protobuf to the domain and back: the only place of the gateway that knows both."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

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
from gateway.rewards import LiveRewardServer
from gateway.store.datasets import StoredDataset
from plaudit.errors import FieldViolation, InvalidArgumentError
from plaudit.gateway.v1 import (
    dataset_service_pb2,
    reward_server_service_pb2,
    training_job_pb2,
    training_job_service_pb2,
)
from plaudit.types.jobs import RewardBinding, TrainingJobSpec
from plaudit.types.statuses import JobStatus
from plaudit.types.validation import check_job_spec, parse_json_object

_STATUS_PREFIX: Final = "TRAINING_JOB_STATUS_"
_NANOS: Final = 1_000_000_000


def spec_to_data(spec: training_job_pb2.TrainingJobSpec) -> dict[str, Any]:
    """A spec as JSON-like data, unchecked; a field that is not set, or empty text, is left out.

    Raises InvalidArgumentError where a JSON text in it is none, and then with all else that is wrong in it.
    """
    violations: list[FieldViolation] = []

    def parsed(text: str, field: str) -> dict[str, Any]:
        try:
            return parse_json_object(text, field)
        except InvalidArgumentError as error:
            violations.extend(error.violations)
            return {}

    given = {
        "base_model": spec.base_model,
        "dataset_id": spec.dataset_id,
        "output_name": spec.output_name,
        "method": spec.method,
        "resume_from": spec.resume_from,
    }
    data: dict[str, Any] = {name: value for name, value in given.items() if value}
    data["hyperparameters"] = parsed(spec.hyperparameters_json, "hyperparameters")
    if spec.rewards:
        data["rewards"] = [
            _binding_to_data(binding, parsed(binding.config_json, f"rewards[{index}].config"))
            for index, binding in enumerate(spec.rewards)
        ]
    if violations:
        raise InvalidArgumentError([*violations, *check_job_spec(data)[1]])
    return data


def statuses_from_proto(statuses: Sequence[training_job_pb2.TrainingJobStatus.ValueType]) -> list[JobStatus]:
    """Statuses of a filter, or InvalidArgumentError."""
    known = {status_to_proto(status): status for status in JobStatus}
    violations = [
        FieldViolation(f"statuses[{index}]", f"{status} is no status; leave it out")
        for index, status in enumerate(statuses)
        if status not in known
    ]
    if violations:
        raise InvalidArgumentError(violations)
    return [known[status] for status in statuses]


def status_to_proto(status: JobStatus) -> training_job_pb2.TrainingJobStatus.ValueType:
    """The enum value of a status."""
    return training_job_pb2.TrainingJobStatus.Value(f"{_STATUS_PREFIX}{status.name}")


def job_to_proto(job: Job) -> training_job_pb2.TrainingJob:
    """A job."""
    return training_job_pb2.TrainingJob(
        id=job.id,
        spec=_spec_to_proto(job.spec),
        status=status_to_proto(job.status),
        status_detail=job.status_detail,
        error=_error_to_proto(job.error),
        current_step=job.current_step,
        total_steps=job.total_steps,
        attempt=job.attempt,
        metrics=dict(job.metrics),
        created_at=_time(job.created_at),
        started_at=_time(job.started_at),
        finished_at=_time(job.finished_at),
        latest_checkpoint_id=job.latest_checkpoint_id,
        updated_at=_time(job.updated_at),
    )


def event_to_proto(event: Event) -> training_job_service_pb2.TrainingJobEvent:
    """An event."""
    return training_job_service_pb2.TrainingJobEvent(
        cursor=event.cursor,
        event_time=_time(event.time),
        job_id=event.job_id,
        **_payload_to_proto(event.payload),
    )


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
        outcomes=[_outcome_to_proto(outcome) for outcome in completion.outcomes],
    )


def dataset_to_proto(dataset: StoredDataset) -> dataset_service_pb2.Dataset:
    """A dataset."""
    return dataset_service_pb2.Dataset(
        id=dataset.id,
        name=dataset.name,
        source_type=dataset.source_type,
        row_count=dataset.row_count,
        columns=dataset.columns,
        size_bytes=dataset.size_bytes,
        sha256=dataset.sha256,
        created_at=_time(dataset.created_at),
    )


def reward_server_to_proto(live: LiveRewardServer) -> reward_server_service_pb2.RewardServer:
    """A reward server, and what it answers."""
    return reward_server_service_pb2.RewardServer(
        id=live.server.id,
        name=live.server.name,
        addresses=live.server.addresses,
        created_at=_time(live.server.created_at),
        reachable=live.description.reachable,
        unreachable_reason=live.description.unreachable_reason,
        server_version=live.description.server_version,
        rewards=[_offered_to_proto(reward) for reward in live.description.rewards],
    )


def _binding_to_data(binding: training_job_pb2.RewardBinding, config: dict[str, Any]) -> dict[str, Any]:
    given = {"name": binding.name, "server": binding.server, "reward": binding.reward}
    data: dict[str, Any] = {name: value for name, value in given.items() if value}
    if binding.HasField("weight"):
        data["weight"] = _as_written(binding.weight)
    if binding.HasField("timeout"):
        data["timeout_seconds"] = _as_written(binding.timeout.seconds + binding.timeout.nanos / _NANOS)
    return {**data, "config": config}


def _as_written(number: float) -> int | float:
    """2 for 2.0: an error shows the number as its author wrote it, in JSON as here."""
    return int(number) if number.is_integer() else number


def _spec_to_proto(spec: TrainingJobSpec) -> training_job_pb2.TrainingJobSpec:
    return training_job_pb2.TrainingJobSpec(
        base_model=spec.base_model,
        dataset_id=spec.dataset_id,
        output_name=spec.output_name,
        method=spec.method,
        hyperparameters_json=spec.hyperparameters.model_dump_json(),
        rewards=[_binding_to_proto(binding) for binding in spec.rewards],
        resume_from=spec.resume_from or "",
    )


def _binding_to_proto(binding: RewardBinding) -> training_job_pb2.RewardBinding:
    timeout = Duration()
    timeout.FromNanoseconds(round(binding.timeout_seconds * _NANOS))
    return training_job_pb2.RewardBinding(
        name=binding.name,
        server=binding.server,
        reward=binding.reward,
        weight=binding.weight,
        config_json=json.dumps(binding.config),
        timeout=timeout,
    )


def _error_to_proto(error: JobError | None) -> training_job_pb2.JobError | None:
    return None if error is None else training_job_pb2.JobError(code=error.code, message=error.message)


def _payload_to_proto(payload: Payload | Bookmark) -> Mapping[str, Any]:
    """The one field of TrainingJobEvent's oneof that holds `payload`."""
    match payload:
        case StatusChanged(status, detail, error):
            message = training_job_service_pb2.StatusChanged(
                status=status_to_proto(status), detail=detail, error=_error_to_proto(error)
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


def _outcome_to_proto(outcome: RewardOutcome) -> training_job_service_pb2.RewardOutcome:
    return training_job_service_pb2.RewardOutcome(
        name=outcome.name,
        value=outcome.value,
        explanation=outcome.explanation,
        status=outcome.status,
        scored_at=_time(outcome.scored_at),
    )


def _offered_to_proto(reward: OfferedReward) -> reward_server_service_pb2.OfferedReward:
    return reward_server_service_pb2.OfferedReward(
        name=reward.name,
        description=reward.description,
        min_value=reward.min_value,
        max_value=reward.max_value,
        required_columns=reward.required_columns,
        config_schema_json="" if reward.config_schema is None else json.dumps(reward.config_schema),
    )


def _time(time: datetime | None) -> Timestamp | None:
    if time is None:
        return None
    stamp = Timestamp()
    stamp.FromDatetime(time)
    return stamp
