"""Protobuf to the domain and back: the only place of the gateway that knows both."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any, Final, get_args

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

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
from gateway.jobs.job import Job, JobAlert, JobError
from gateway.jobs.ports import OfferedReward
from gateway.jobs.series import MetricSeries
from gateway.rescoring.rescore import Rescore, RescoreResult, RescoreSummary
from gateway.rewards import LiveRewardServer, Registration, ReplicaHealth
from gateway.store.datasets import StoredDataset
from gateway.store.reward_functions import RewardFunction
from plaudit.errors import FieldViolation, InvalidArgumentError
from plaudit.gateway.v1 import (
    dataset_service_pb2,
    rescore_service_pb2,
    reward_function_service_pb2,
    reward_server_service_pb2,
    training_job_pb2,
    training_job_service_pb2,
)
from plaudit.types.access import TlsAccess
from plaudit.types.dataset_sources import DatasetSource
from plaudit.types.jobs import RewardBinding, TrainingJobSpec
from plaudit.types.methods import Method
from plaudit.types.preflight import PreflightReport
from plaudit.types.statuses import JobStatus
from plaudit.types.validation import (
    check_job_spec,
    check_rescore_spec,
    parse_json_object,
    parse_model,
    shown,
)

_STATUS_PREFIX: Final = "TRAINING_JOB_STATUS_"
_NANOS: Final = 1_000_000_000


def spec_to_data(spec: training_job_pb2.TrainingJobSpec) -> dict[str, Any]:
    """A spec as JSON-like data, unchecked; a field that is not set, or empty text, is left out.

    Raises InvalidArgumentError where a JSON text in it is none, and then with all else that is wrong in it.
    """
    violations: list[FieldViolation] = []

    given = {
        "base_model": spec.base_model,
        "dataset_id": spec.dataset_id,
        "output_name": spec.output_name,
        "method": spec.method,
        "resume_from": spec.resume_from,
        "preflight": spec.preflight,
    }
    data: dict[str, Any] = {name: value for name, value in given.items() if value}
    data["hyperparameters"] = _parsed(spec.hyperparameters_json, "hyperparameters", violations)
    if spec.rewards:
        data["rewards"] = _bindings_to_data(spec.rewards, violations)
    if violations:
        raise InvalidArgumentError([*violations, *check_job_spec(data)[1]])
    return data


def job_request_to_data(request: training_job_service_pb2.CreateTrainingJobRequest) -> dict[str, Any]:
    """A request for a job as JSON-like data, unchecked. Raises InvalidArgumentError as `spec_to_data`."""
    data = spec_to_data(request.spec)
    if request.reward_sources:
        data["reward_sources"] = list(request.reward_sources)
    if request.reward_function_ids:
        data["reward_function_ids"] = list(request.reward_function_ids)
    if request.reward_weights:
        data["reward_weights"] = [_as_written(weight) for weight in request.reward_weights]
    return {**data, "requires_heartbeat": request.requires_heartbeat}


def overrides_to_data(text: str) -> dict[str, Any]:
    """What a clone is to have other, as JSON-like data, unchecked. Raises InvalidArgumentError."""
    return parse_json_object(text, "overrides_json")


def reward_function_to_proto(
    function: RewardFunction, *, with_source: bool
) -> reward_function_service_pb2.RewardFunction:
    """A reward function."""
    return reward_function_service_pb2.RewardFunction(
        id=function.id,
        name=function.name,
        format=function.format,
        filename=function.filename,
        source=function.source if with_source else "",
        size_bytes=function.size_bytes,
        sha256=function.sha256,
        created_at=_time(function.created_at),
    )


def rescore_to_data(request: rescore_service_pb2.CreateRescoreRequest) -> dict[str, Any]:
    """What a rescore asks for as JSON-like data, unchecked; rewards are left out where there are none.

    Raises InvalidArgumentError where a JSON text in it is none, and then with all else that is wrong in it.
    """
    violations: list[FieldViolation] = []
    data: dict[str, Any] = {"from_step": request.from_step, "to_step": request.to_step}
    if request.rewards:
        data["rewards"] = _bindings_to_data(request.rewards, violations)
    if violations:
        raise InvalidArgumentError([*violations, *check_rescore_spec(data)[1]])
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


def method_from_proto(method: str) -> str | None:
    """The method of a filter, None where all are asked for, or InvalidArgumentError."""
    if method and method not in get_args(Method):
        raise InvalidArgumentError.of(
            "method", f"{shown(method)} is no method; one of {', '.join(get_args(Method))}, or left out"
        )
    return method or None


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
        preflight=_preflight_to_proto(job.preflight),
        requires_heartbeat=job.requires_heartbeat,
        created_by=job.created_by,
        model_id=job.model_id,
        alerts=[_job_alert_to_proto(alert) for alert in job.alerts],
    )


def event_to_proto(event: Event) -> training_job_service_pb2.TrainingJobEvent:
    """An event; made once for all who get it."""
    message: training_job_service_pb2.TrainingJobEvent | None = event.forms.get("proto")
    if message is None:
        message = training_job_service_pb2.TrainingJobEvent(
            cursor=event.cursor,
            event_time=_time(event.time),
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
        outcomes=[_outcome_to_proto(outcome) for outcome in completion.outcomes],
    )


def rescore_to_proto(rescore: Rescore) -> rescore_service_pb2.Rescore:
    """A rescore."""
    return rescore_service_pb2.Rescore(
        id=rescore.id,
        job_id=rescore.job_id,
        rewards=[_binding_to_proto(binding) for binding in rescore.spec.rewards],
        from_step=rescore.spec.from_step,
        to_step=rescore.spec.to_step,
        status=rescore_service_pb2.RescoreStatus.Value(f"RESCORE_STATUS_{rescore.status.name}"),
        status_detail=rescore.status_detail,
        error=_error_to_proto(rescore.error),
        done_count=rescore.done_count,
        total_count=rescore.total_count,
        summary=_summary_to_proto(rescore.summary),
        created_at=_time(rescore.created_at),
        started_at=_time(rescore.started_at),
        finished_at=_time(rescore.finished_at),
    )


def rescore_result_to_proto(result: RescoreResult) -> rescore_service_pb2.RescoreResult:
    """A completion with its old and new scores."""
    return rescore_service_pb2.RescoreResult(
        completion=completion_to_proto(result.completion),
        new_reward=result.new_reward,
        new_outcomes=[_outcome_to_proto(outcome) for outcome in result.new_outcomes],
    )


def dataset_to_proto(dataset: StoredDataset) -> dataset_service_pb2.Dataset:
    """A dataset."""
    return dataset_service_pb2.Dataset(
        id=dataset.id,
        name=dataset.name,
        source_type=dataset.source_type,
        row_count=dataset.row_count,
        columns=dataset.columns,
        methods=dataset.methods,
        size_bytes=dataset.size_bytes,
        sha256=dataset.sha256,
        created_at=_time(dataset.created_at),
        source=_source_to_proto(dataset.source),
    )


def source_to_data(source: dataset_service_pb2.DatasetSource) -> dict[str, Any]:
    """A source as JSON-like data, unchecked; what is empty is left out."""
    given = {name: getattr(source, name) for name in ("source_type", "huggingface_dataset", "path", "format")}
    data: dict[str, Any] = {name: value for name, value in given.items() if value}
    if source.HasField("huggingface_config"):
        config = source.huggingface_config
        named = {name: getattr(config, name) for name in ("split", "config_name", "token")}
        data["huggingface_config"] = {
            **{name: value for name, value in named.items() if value},
            "column_mapping": dict(config.column_mapping),
        }
    return data


def dataset_row_to_proto(row: RowPreview) -> dataset_service_pb2.DatasetRow:
    """A row of a dataset."""
    return dataset_service_pb2.DatasetRow(
        number=row.number,
        prompt_json=json.dumps(row.prompt, ensure_ascii=False),
        columns_json=json.dumps(row.columns, ensure_ascii=False),
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
        tls=_tls_to_proto(live.server.access.tls),
        credential=live.server.access.credential or "",
        plaintext=live.server.access.plaintext,
        replicas=[_replica_to_proto(replica) for replica in live.replicas],
        warnings=live.description.warnings,
    )


def registration_from_proto(asked: reward_server_service_pb2.RewardServer) -> Registration:
    """What is asked for, or InvalidArgumentError with every name in it that is none."""
    data: dict[str, Any] = {"addresses": list(asked.addresses), "plaintext": asked.plaintext}
    if asked.credential:
        data["credential"] = asked.credential
    if asked.HasField("tls"):
        names = ("ca", "client_certificate", "server_name")
        data["tls"] = {name: getattr(asked.tls, name) for name in names if getattr(asked.tls, name)}
    return parse_model(Registration, data)


def _source_to_proto(source: DatasetSource | None) -> dataset_service_pb2.DatasetSource | None:
    if source is None:
        return None
    config = source.huggingface_config
    message = dataset_service_pb2.DatasetSource(
        source_type=source.source_type,
        huggingface_dataset=source.huggingface_dataset or "",
        path=source.path or "",
        format=source.format or "",
    )
    if source.source_type == "hf":
        message.huggingface_config.CopyFrom(
            dataset_service_pb2.HuggingFaceConfig(
                split=config.split,
                config_name=config.config_name or "",
                column_mapping=config.column_mapping,
                token=config.token or "",
            )
        )
    return message


def _parsed(text: str, field: str, violations: list[FieldViolation]) -> dict[str, Any]:
    """The JSON object in `text`; what is wrong with it is added to `violations`."""
    try:
        return parse_json_object(text, field)
    except InvalidArgumentError as error:
        violations.extend(error.violations)
        return {}


def _bindings_to_data(
    bindings: Sequence[training_job_pb2.RewardBinding], violations: list[FieldViolation]
) -> list[dict[str, Any]]:
    return [
        _binding_to_data(binding, _parsed(binding.config_json, f"rewards[{index}].config", violations))
        for index, binding in enumerate(bindings)
    ]


def _binding_to_data(binding: training_job_pb2.RewardBinding, config: dict[str, Any]) -> dict[str, Any]:
    given = {"name": binding.name, "server": binding.server, "reward": binding.reward}
    data: dict[str, Any] = {name: value for name, value in given.items() if value}
    if binding.HasField("weight"):
        data["weight"] = _as_written(binding.weight)
    if binding.HasField("timeout"):
        data["timeout_seconds"] = _seconds(binding.timeout)
    if binding.HasField("max_attempts"):
        data["max_attempts"] = binding.max_attempts
    if binding.HasField("retry_time"):
        data["retry_seconds"] = _seconds(binding.retry_time)
    return {**data, "config": config}


def _seconds(duration: Duration) -> int | float:
    return _as_written(duration.seconds + duration.nanos / _NANOS)


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
        preflight=spec.preflight,
    )


def _binding_to_proto(binding: RewardBinding) -> training_job_pb2.RewardBinding:
    timeout, retry_time = Duration(), Duration()
    timeout.FromNanoseconds(round(binding.timeout_seconds * _NANOS))
    retry_time.FromNanoseconds(round(binding.retry_seconds * _NANOS))
    return training_job_pb2.RewardBinding(
        name=binding.name,
        server=binding.server,
        reward=binding.reward,
        weight=binding.weight,
        config_json=json.dumps(binding.config),
        timeout=timeout,
        max_attempts=binding.max_attempts,
        retry_time=retry_time,
    )


def _preflight_to_proto(report: PreflightReport | None) -> training_job_pb2.PreflightReport | None:
    if report is None:
        return None
    return training_job_pb2.PreflightReport(
        prompt_count=report.prompt_count,
        completion_count=report.completion_count,
        truncated_count=report.truncated_count,
        empty_count=report.empty_count,
        seconds=report.seconds,
        informative_group_fraction=report.informative_group_fraction,
        rewards=[training_job_pb2.PreflightReward(**reward.model_dump()) for reward in report.rewards],
        findings=[training_job_pb2.PreflightFinding(**finding.model_dump()) for finding in report.findings],
        samples=[training_job_pb2.PreflightSample(**sample.model_dump()) for sample in report.samples],
    )


def _job_alert_to_proto(alert: JobAlert) -> training_job_pb2.JobAlert:
    return training_job_pb2.JobAlert(
        kind=alert.kind,
        subject=alert.subject,
        severity=alert.severity,
        message=alert.message,
        evidence=alert.evidence,
        step=alert.step,
        raised_at=_time(alert.raised_at),
        ended_step=alert.ended_step,
    )


def _summary_to_proto(summary: RescoreSummary) -> rescore_service_pb2.RescoreSummary:
    fields = asdict(summary)
    rewards = fields.pop("rewards")
    return rescore_service_pb2.RescoreSummary(
        **fields, rewards=[rescore_service_pb2.RescoredReward(**reward) for reward in rewards]
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
        problem=reward.problem,
    )


def _tls_to_proto(tls: TlsAccess | None) -> reward_server_service_pb2.RewardServerTls | None:
    if tls is None:
        return None
    return reward_server_service_pb2.RewardServerTls(
        ca=tls.ca or "", client_certificate=tls.client_certificate or "", server_name=tls.server_name or ""
    )


def _replica_to_proto(replica: ReplicaHealth) -> reward_server_service_pb2.RewardServerReplica:
    message = reward_server_service_pb2.RewardServerReplica(
        address=replica.address,
        state=reward_server_service_pb2.RewardServerReplica.State.Value(f"STATE_{replica.state.name}"),
        reason=replica.reason,
        since=_time(replica.since),
        checked_at=_time(replica.checked_at),
        server_version=replica.server_version,
    )
    if replica.latency_seconds is not None:
        message.latency.FromNanoseconds(round(replica.latency_seconds * _NANOS))
    return message


def _time(time: datetime | None) -> Timestamp | None:
    if time is None:
        return None
    stamp = Timestamp()
    stamp.FromDatetime(time)
    return stamp
