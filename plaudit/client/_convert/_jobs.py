"""Training jobs."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from google.protobuf.json_format import MessageToDict

from plaudit.client import models
from plaudit.client._convert._carrying import as_list
from plaudit.client._convert._reading import reads_answer
from plaudit.client._convert._values import error_from_proto, time_from_proto
from plaudit.errors import InvalidArgumentError
from plaudit.gateway.v1 import training_job_pb2
from plaudit.types.jobs import TrainingJobSpec, accepted_job_spec
from plaudit.types.memory import MemoryEstimate
from plaudit.types.preflight import PreflightReport
from plaudit.types.statuses import JobStatus
from plaudit.types.validation import shown

_STATUS_PREFIX = "TRAINING_JOB_STATUS_"


def status_to_proto(status: JobStatus) -> training_job_pb2.TrainingJobStatus.ValueType:
    """The enum value of a status."""
    return training_job_pb2.TrainingJobStatus.Value(f"{_STATUS_PREFIX}{status.name}")


def statuses_of(field: str, values: Iterable[JobStatus | str]) -> list[JobStatus]:
    """Statuses by what a caller gave, texts too, or InvalidArgumentError that names the field."""
    try:
        return [JobStatus(value) for value in as_list(field, values)]
    except ValueError:
        known = ", ".join(status.value for status in JobStatus)
        raise InvalidArgumentError.of(
            field, f"{shown([*values])} is refused: each entry is one of {known}"
        ) from None


def status_from_proto(status: training_job_pb2.TrainingJobStatus.ValueType) -> JobStatus:
    """The status of an enum value."""
    name = training_job_pb2.TrainingJobStatus.Name(status)
    return JobStatus(name.removeprefix(_STATUS_PREFIX).lower())


@reads_answer
def spec_from_proto(message: training_job_pb2.TrainingJobSpec) -> TrainingJobSpec:
    """A spec as the gateway keeps it; it was checked there, and a newer gateway's fields are passed over."""
    return accepted_job_spec(
        {
            "base_model": message.base_model,
            "dataset_id": message.dataset_id,
            "output_name": message.output_name,
            "method": message.method,
            "hyperparameters": json.loads(message.hyperparameters_json or "{}"),
            "rewards": [binding_from_proto(binding) for binding in message.rewards],
            "resume_from": message.resume_from or None,
            "preflight": message.preflight or "stop",
        }
    )


@reads_answer
def job_from_proto(message: training_job_pb2.TrainingJob) -> models.TrainingJob:
    """A job."""
    return models.TrainingJob(
        id=message.id,
        spec=spec_from_proto(message.spec),
        status=status_from_proto(message.status),
        status_detail=message.status_detail,
        error=error_from_proto(message.error) if message.HasField("error") else None,
        current_step=message.current_step,
        total_steps=message.total_steps,
        attempt=message.attempt,
        metrics=dict(message.metrics),
        latest_checkpoint_id=message.latest_checkpoint_id,
        created_at=time_from_proto(message, "created_at"),
        started_at=time_from_proto(message, "started_at"),
        finished_at=time_from_proto(message, "finished_at"),
        updated_at=time_from_proto(message, "updated_at"),
        preflight=_preflight_from_proto(message.preflight) if message.HasField("preflight") else None,
        requires_heartbeat=message.requires_heartbeat,
        created_by=message.created_by,
        model_id=message.model_id,
        alerts=tuple(_alert_from_proto(alert) for alert in message.alerts),
        memory=_memory_from_proto(message.memory) if message.HasField("memory") else None,
    )


@reads_answer
def binding_from_proto(message: training_job_pb2.RewardBinding) -> dict[str, Any]:
    """A reward as JSON-like data, every default filled in."""
    return {
        "name": message.name,
        "server": message.server,
        "reward": message.reward,
        "weight": message.weight if message.HasField("weight") else 1.0,
        "config": json.loads(message.config_json or "{}"),
        "timeout_seconds": message.timeout.ToNanoseconds() / 1e9,
        "max_attempts": message.max_attempts,
        "retry_seconds": message.retry_time.ToNanoseconds() / 1e9,
    }


def _alert_from_proto(message: training_job_pb2.JobAlert) -> models.JobAlert:
    return models.JobAlert(
        kind=message.kind,
        subject=message.subject,
        severity=message.severity,
        message=message.message,
        evidence=dict(message.evidence),
        step=message.step,
        raised_at=time_from_proto(message, "raised_at"),
        ended_step=message.ended_step if message.HasField("ended_step") else None,
    )


def _memory_from_proto(message: training_job_pb2.MemoryEstimate) -> MemoryEstimate:
    return MemoryEstimate.model_validate(
        MessageToDict(message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True)
    )


def _preflight_from_proto(message: training_job_pb2.PreflightReport) -> PreflightReport:
    return PreflightReport.model_validate(
        MessageToDict(message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True)
    )
