"""Training jobs, and requests for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, get_args

from gateway.jobs.job import Job, JobAlert
from gateway.servicers._convert._bindings import as_written, binding_to_proto, bindings_to_data
from gateway.servicers._convert._values import error_to_proto, parsed_object, time_to_proto
from plaudit.errors import FieldViolation, InvalidArgumentError
from plaudit.gateway.v1 import training_job_pb2, training_job_service_pb2
from plaudit.types.jobs import TrainingJobSpec
from plaudit.types.methods import Method
from plaudit.types.preflight import PreflightReport
from plaudit.types.statuses import JobStatus
from plaudit.types.validation import parse_json_object, shown

_STATUS_PREFIX: Final = "TRAINING_JOB_STATUS_"


def spec_to_data(spec: training_job_pb2.TrainingJobSpec, violations: list[FieldViolation]) -> dict[str, Any]:
    """A spec as JSON-like data, unchecked; a field that is not set, or empty text, is left out. JSON texts in
    it that are none, and lengths of time, are added to `violations`.
    """
    given = {
        "base_model": spec.base_model,
        "dataset_id": spec.dataset_id,
        "output_name": spec.output_name,
        "method": spec.method,
        "resume_from": spec.resume_from,
        "preflight": spec.preflight,
    }
    data: dict[str, Any] = {name: value for name, value in given.items() if value}
    data["hyperparameters"] = parsed_object(spec.hyperparameters_json, "hyperparameters", violations)
    if spec.rewards:
        data["rewards"] = bindings_to_data(spec.rewards, violations)
    return data


def job_request_to_data(
    request: training_job_service_pb2.CreateTrainingJobRequest, violations: list[FieldViolation]
) -> dict[str, Any]:
    """A request for a job as JSON-like data, unchecked; `violations` as `spec_to_data`."""
    data = spec_to_data(request.spec, violations)
    if request.reward_sources:
        data["reward_sources"] = list(request.reward_sources)
    if request.reward_function_ids:
        data["reward_function_ids"] = list(request.reward_function_ids)
    if request.reward_weights:
        data["reward_weights"] = [as_written(weight) for weight in request.reward_weights]
    return {**data, "requires_heartbeat": request.requires_heartbeat}


def overrides_to_data(text: str) -> dict[str, Any]:
    """What a clone is to have other, as JSON-like data, unchecked. Raises InvalidArgumentError."""
    return parse_json_object(text, "overrides_json")


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
        error=error_to_proto(job.error),
        current_step=job.current_step,
        total_steps=job.total_steps,
        attempt=job.attempt,
        metrics=dict(job.metrics),
        created_at=time_to_proto(job.created_at),
        started_at=time_to_proto(job.started_at),
        finished_at=time_to_proto(job.finished_at),
        latest_checkpoint_id=job.latest_checkpoint_id,
        updated_at=time_to_proto(job.updated_at),
        preflight=_preflight_to_proto(job.preflight),
        requires_heartbeat=job.requires_heartbeat,
        created_by=job.created_by,
        model_id=job.model_id,
        alerts=[_job_alert_to_proto(alert) for alert in job.alerts],
        memory=training_job_pb2.MemoryEstimate(**job.memory.model_dump()) if job.memory else None,
    )


def _spec_to_proto(spec: TrainingJobSpec) -> training_job_pb2.TrainingJobSpec:
    return training_job_pb2.TrainingJobSpec(
        base_model=spec.base_model,
        dataset_id=spec.dataset_id,
        output_name=spec.output_name,
        method=spec.method,
        hyperparameters_json=spec.hyperparameters.model_dump_json(),
        rewards=[binding_to_proto(binding) for binding in spec.rewards],
        resume_from=spec.resume_from or "",
        preflight=spec.preflight,
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
        raised_at=time_to_proto(alert.raised_at),
        ended_step=alert.ended_step,
    )
