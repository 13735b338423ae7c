"""Protobuf to the SDK's models and back: the only place of the SDK that knows both."""

from __future__ import annotations

import json
from collections.abc import Mapping, Set
from datetime import UTC, datetime
from typing import Any, Final, TypeVar

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from plaudit.client import models
from plaudit.errors import FieldViolation, InvalidArgumentError
from plaudit.gateway.v1 import (
    dataset_service_pb2,
    reward_function_service_pb2,
    reward_server_service_pb2,
    training_job_pb2,
)
from plaudit.gateway.v1 import training_job_service_pb2 as service_pb2
from plaudit.types.access import ServerAccess, TlsAccess
from plaudit.types.jobs import TrainingJobSpec, accepted_job_spec
from plaudit.types.preflight import PreflightReport
from plaudit.types.statuses import JobStatus
from plaudit.types.validation import check_job_spec, json_fault, shown

AnyMessage = TypeVar("AnyMessage", bound=Message)

_STATUS_PREFIX = "TRAINING_JOB_STATUS_"


def status_to_proto(status: JobStatus) -> training_job_pb2.TrainingJobStatus.ValueType:
    """The enum value of a status."""
    return training_job_pb2.TrainingJobStatus.Value(f"{_STATUS_PREFIX}{status.name}")


def status_from_proto(status: training_job_pb2.TrainingJobStatus.ValueType) -> JobStatus:
    """The status of an enum value."""
    name = training_job_pb2.TrainingJobStatus.Name(status)
    return JobStatus(name.removeprefix(_STATUS_PREFIX).lower())


def spec_to_proto(data: object) -> training_job_pb2.TrainingJobSpec:
    """JSON-like data as a message, unchecked where the message can carry it.

    The gateway checks, so that it tells everything wrong at once, its own findings included. Data that no
    message can carry (a number for a name, a field that does not exist) is refused here, in the same words.
    """
    try:
        return _carry_spec(data)
    except UnicodeEncodeError:
        raise InvalidArgumentError.of("(request)", str(json_fault(data))) from None
    except Uncarriable:
        violations = check_job_spec(data)[1] or [FieldViolation("(request)", _not_json(data))]
        raise InvalidArgumentError(violations) from None


def job_request_to_proto(data: object, fields: Mapping[str, Any]) -> service_pb2.CreateTrainingJobRequest:
    """JSON-like data that creates a job, and further fields, as a message; see `spec_to_proto`."""
    beside: dict[str, Any] = {}
    if isinstance(data, Mapping):
        beside = {name: data[name] for name in BESIDE_SPEC if data.get(name) is not None}
        data = {name: value for name, value in data.items() if name not in BESIDE_SPEC}
    for name in ("reward_source", "reward_function_id"):
        if name in beside:
            beside.setdefault(f"{name}s", []).append(beside.pop(name))
    return carry(service_pb2.CreateTrainingJobRequest, {"spec": spec_to_proto(data), **beside, **fields})


def json_text(field: str, data: Mapping[str, object]) -> str:
    """JSON-like data as text, or InvalidArgumentError that names the field."""
    try:
        return _json(data)
    except Uncarriable:
        raise InvalidArgumentError.of(field, _not_json(data)) from None


def reward_function_from_proto(
    message: reward_function_service_pb2.RewardFunction,
) -> models.RewardFunction:
    """A reward function."""
    return models.RewardFunction(
        id=message.id,
        name=message.name,
        format=message.format,
        filename=message.filename,
        source=message.source,
        size_bytes=message.size_bytes,
        sha256=message.sha256,
        created_at=_time(message, "created_at"),
    )


def carry(kind: type[AnyMessage], fields: Mapping[str, Any]) -> AnyMessage:
    """A message with these fields, or InvalidArgumentError with every one whose value it has no place for."""
    try:
        return kind(**fields)
    except (TypeError, ValueError):
        violations = [
            FieldViolation(name, f"{shown(value)} is refused: must be {_place(kind, name)}")
            for name, value in fields.items()
            if not _fits(kind, name, value)
        ]
        raise InvalidArgumentError(violations) from None


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
        created_at=_time(message, "created_at"),
        started_at=_time(message, "started_at"),
        finished_at=_time(message, "finished_at"),
        updated_at=_time(message, "updated_at"),
        preflight=_preflight_from_proto(message.preflight) if message.HasField("preflight") else None,
        requires_heartbeat=message.requires_heartbeat,
        created_by=message.created_by,
        model_id=message.model_id,
        alerts=tuple(_alert_from_proto(alert) for alert in message.alerts),
    )


def event_from_proto(message: service_pb2.TrainingJobEvent) -> models.JobEvent | None:
    """An event, or None for a kind that this SDK does not know yet."""
    body = _event_body(message)
    if body is None:
        return None
    return models.JobEvent(message.cursor, message.job_id, _utc(message.event_time), body)


def series_from_proto(message: service_pb2.GetTrainingJobMetricsResponse) -> models.MetricSeries:
    """Metric series."""
    return models.MetricSeries(
        metrics=tuple(_step_metrics(row) for row in message.metrics),
        available_keys=tuple(message.available_keys),
        latest_step=message.latest_step,
    )


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
        scored_at=_time(message, "scored_at"),
    )


def dataset_from_proto(message: dataset_service_pb2.Dataset) -> models.Dataset:
    """A dataset."""
    return models.Dataset(
        id=message.id,
        name=message.name,
        source_type=message.source_type,
        row_count=message.row_count,
        columns=tuple(message.columns),
        methods=tuple(message.methods),
        size_bytes=message.size_bytes,
        sha256=message.sha256,
        created_at=_time(message, "created_at"),
        source_uri=_source_uri(message.source) if message.HasField("source") else "",
    )


def tried_source_from_proto(
    message: dataset_service_pb2.ValidateDatasetSourceResponse,
) -> models.TriedSource:
    """What the first rows of a source are like."""
    count = message.row_count if message.HasField("row_count") else None
    return models.TriedSource(message.error, count, tuple(message.columns))


def _source_uri(source: dataset_service_pb2.DatasetSource) -> str:
    is_file = source.source_type == "path"
    return f"file://{source.path}" if is_file else f"hf://datasets/{source.huggingface_dataset}"


def dataset_row_from_proto(message: dataset_service_pb2.DatasetRow) -> models.DatasetRow:
    """A row of a dataset."""
    return models.DatasetRow(
        number=message.number,
        prompt=json.loads(message.prompt_json),
        columns=json.loads(message.columns_json),
    )


def reward_server_from_proto(message: reward_server_service_pb2.RewardServer) -> models.RewardServer:
    """A reward server."""
    return models.RewardServer(
        id=message.id,
        name=message.name,
        addresses=tuple(message.addresses),
        created_at=_time(message, "created_at"),
        reachable=message.reachable,
        unreachable_reason=message.unreachable_reason,
        server_version=message.server_version,
        rewards=tuple(
            models.OfferedReward(
                name=reward.name,
                description=reward.description,
                min_value=reward.min_value if reward.HasField("min_value") else None,
                max_value=reward.max_value if reward.HasField("max_value") else None,
                required_columns=tuple(reward.required_columns),
                config_schema_json=reward.config_schema_json,
                problem=reward.problem,
            )
            for reward in message.rewards
        ),
        access=_access_from_proto(message),
        replicas=tuple(_replica_from_proto(replica) for replica in message.replicas),
        warnings=tuple(message.warnings),
    )


def _access_from_proto(message: reward_server_service_pb2.RewardServer) -> ServerAccess:
    tls = TlsAccess.model_construct(
        ca=message.tls.ca or None,
        client_certificate=message.tls.client_certificate or None,
        server_name=message.tls.server_name or None,
    )
    return ServerAccess.model_construct(
        tls=tls if message.HasField("tls") else None,
        credential=message.credential or None,
        plaintext=message.plaintext,
    )


def _replica_from_proto(
    message: reward_server_service_pb2.RewardServerReplica,
) -> models.RewardServerReplica:
    state = reward_server_service_pb2.RewardServerReplica.State.Name(message.state)
    return models.RewardServerReplica(
        address=message.address,
        state=models.ReplicaState(state.removeprefix("STATE_").lower()),
        reason=message.reason,
        since=_time(message, "since"),
        checked_at=_time(message, "checked_at"),
        server_version=message.server_version,
        latency_seconds=message.latency.ToNanoseconds() / 1e9 if message.HasField("latency") else None,
    )


def _fits(kind: type[Message], name: str, value: object) -> bool:
    try:
        kind(**{name: value})
    except (TypeError, ValueError):
        return False
    return True


def _place(kind: type[Message], name: str) -> str:
    """What a field of a message holds, for people."""
    field = kind.DESCRIPTOR.fields_by_name[name]
    what = _PLACES.get(field.cpp_type, "of another type")
    return f"a list, each entry {what}" if field.is_repeated else what


_PLACES: Final = {
    FieldDescriptor.CPPTYPE_STRING: "text, whole characters of UTF-8 only",
    FieldDescriptor.CPPTYPE_INT32: f"a whole number up to {2**31 - 1}",
    FieldDescriptor.CPPTYPE_UINT32: f"a whole number from 0 to {2**32 - 1}",
    FieldDescriptor.CPPTYPE_UINT64: f"a whole number from 0 to {2**64 - 1}",
    FieldDescriptor.CPPTYPE_DOUBLE: "a number",
    FieldDescriptor.CPPTYPE_BOOL: "true or false",
}


def _not_json(data: object) -> str:
    try:
        json.dumps(data)
    except (TypeError, ValueError, RecursionError) as error:
        return f"holds what JSON does not have ({error}); write it as text, or leave it out"
    return "cannot be sent"


class Uncarriable(Exception):
    """Data that the message has no place for."""


_TEXT_FIELDS: Final = ("base_model", "dataset_id", "output_name", "method", "resume_from", "preflight")
BESIDE_SPEC: Final = (
    "reward_source",
    "reward_sources",
    "reward_function_id",
    "reward_function_ids",
    "reward_weights",
    "requires_heartbeat",
)
_BINDING_FIELDS: Final = frozenset(
    {"name", "server", "reward", "weight", "config", "timeout_seconds", "max_attempts", "retry_seconds"}
)
_LONGEST_DURATION_SECONDS: Final = 315_576_000_000


def _carry_spec(data: object) -> training_job_pb2.TrainingJobSpec:
    fields = _mapping(data, {*_TEXT_FIELDS, "hyperparameters", "rewards"})
    rewards = fields.get("rewards", [])
    if not isinstance(rewards, list | tuple):
        raise Uncarriable
    hyperparameters = fields.get("hyperparameters", {})
    if not isinstance(hyperparameters, Mapping):
        raise Uncarriable
    return training_job_pb2.TrainingJobSpec(
        **{name: _text(fields.get(name)) for name in _TEXT_FIELDS},
        hyperparameters_json=_json(hyperparameters),
        rewards=[carry_binding(reward) for reward in rewards],
    )


def carry_binding(data: object) -> training_job_pb2.RewardBinding:
    """A reward of a request as a message, unchecked. Raises Uncarriable."""
    fields = _mapping(data, _BINDING_FIELDS)
    message = training_job_pb2.RewardBinding(
        name=_text(fields.get("name")),
        server=_text(fields.get("server")),
        reward=_text(fields.get("reward")),
    )
    config = fields.get("config", {})
    if not isinstance(config, Mapping):
        raise Uncarriable
    message.config_json = _json(config)
    if "weight" in fields:
        message.weight = _number(fields["weight"])
    if "timeout_seconds" in fields:
        message.timeout.FromNanoseconds(_nanoseconds(fields["timeout_seconds"]))
    if "max_attempts" in fields:
        attempts = fields["max_attempts"]
        if type(attempts) is not int or not 0 <= attempts < 2**32:
            raise Uncarriable
        message.max_attempts = attempts
    if "retry_seconds" in fields:
        message.retry_time.FromNanoseconds(_nanoseconds(fields["retry_seconds"]))
    return message


def _mapping(data: object, names: Set[str]) -> Mapping[str, object]:
    if not isinstance(data, Mapping) or not set(data) <= names:
        raise Uncarriable
    return data


def _text(value: object) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        raise Uncarriable
    return value


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Uncarriable
    try:
        return float(value)
    except OverflowError:
        raise Uncarriable from None


def _nanoseconds(value: object) -> int:
    seconds = _number(value)
    if not abs(seconds) <= _LONGEST_DURATION_SECONDS:
        raise Uncarriable
    return round(seconds * 1e9)


def _json(value: Mapping[str, object]) -> str:
    try:
        return json.dumps(value)
    except (TypeError, ValueError):
        raise Uncarriable from None


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
        raised_at=_time(message, "raised_at"),
        ended_step=message.ended_step if message.HasField("ended_step") else None,
    )


def _preflight_from_proto(message: training_job_pb2.PreflightReport) -> PreflightReport:
    return PreflightReport.model_validate(
        MessageToDict(message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True)
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


def error_from_proto(message: training_job_pb2.JobError) -> models.JobError:
    """Why a job, or a rescore, failed."""
    return models.JobError(message.code, message.message)


def _utc(stamp: Timestamp) -> datetime:
    return stamp.ToDatetime(tzinfo=UTC)


def _time(
    message: training_job_pb2.TrainingJob
    | training_job_pb2.JobAlert
    | dataset_service_pb2.Dataset
    | reward_server_service_pb2.RewardServer
    | reward_server_service_pb2.RewardServerReplica
    | reward_function_service_pb2.RewardFunction
    | service_pb2.RewardOutcome,
    field: str,
) -> datetime | None:
    return _utc(getattr(message, field)) if message.HasField(field) else None  # type: ignore[arg-type]  # the stubs list each message's own fields
