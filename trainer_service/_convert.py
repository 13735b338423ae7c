"""Between plaudit.trainer.v1 and the domain."""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from pathlib import Path
from typing import Final

from google.protobuf import duration_pb2
from pydantic import ValidationError

from plaudit.errors import FieldViolation, InvalidArgumentError
from plaudit.trainer.v1 import trainer_service_pb2 as pb
from plaudit.types.methods import HYPERPARAMETERS
from plaudit.types.statuses import RunState
from plaudit.types.validation import check_run_spec, parse_json_object, shown, violations_of
from trainer_service.devices import Device
from trainer_service.export_directory import ExportRequest
from trainer_service.exported import ExportedModel
from trainer_service.exports import ExportProgress
from trainer_service.journal import (
    CheckpointRemoved,
    CheckpointSaved,
    CompletionsWritten,
    EvaluationFinished,
    JournalRecord,
    LogLine,
    MemoryEstimated,
    ModelExported,
    PreflightFinished,
    RunError,
    RunStateChanged,
    StepCompleted,
)
from trainer_service.run_checks import AskedRun, CheckedRun
from trainer_service.run_directory import ID_PATTERN, RunStart, check_artifact_path
from trainer_service.supervision import RunView
from trainer_service.token_counts import TokenCount, TokenCountRequest

MAX_GRACE_SECONDS: Final = 24 * 3600.0

_STATES: Final = {state: pb.RunState.Value(f"RUN_STATE_{state.name}") for state in RunState}


def run_start(request: pb.StartRunRequest, artifact_root: Path, secrets_dir: Path | None = None) -> RunStart:
    """What StartRun asks for. Raises InvalidArgumentError with every wrong field."""
    violations: list[FieldViolation] = []
    spec = None
    try:
        spec_data = parse_json_object(request.spec_json, "spec_json")
    except InvalidArgumentError as error:
        violations.extend(error.violations)
    else:
        spec, wrong = check_run_spec(spec_data, "spec_json")
        violations.extend(wrong)
    if spec is not None:
        uris = {"dataset.uri": spec.dataset.uri} | {
            f"init_checkpoints[{n}].uri": init.uri for n, init in enumerate(spec.init_checkpoints)
        }
        if spec.eval_dataset is not None:
            uris["eval_dataset.uri"] = spec.eval_dataset.uri
        for field, uri in uris.items():
            try:
                check_artifact_path(uri)
            except ValueError as error:
                violations.append(FieldViolation(f"spec_json.{field}", f"{shown(uri)} is refused: {error}"))
    start = None
    try:
        start = RunStart.model_validate(
            {
                "run_id": request.run_id,
                "job_id": request.job_id,
                "attempt": request.attempt,
                "spec": spec,
                "checkpoint_uri": request.checkpoint_uri or None,
                "artifact_root": artifact_root,
                "secrets_dir": secrets_dir,
            }
        )
    except ValidationError as error:
        violations.extend(v for v in violations_of(error, RunStart) if v.field != "spec")
    if start is None or violations:
        raise InvalidArgumentError(violations)
    return start


def run_id(value: str) -> str:
    """A run id of a request. Raises InvalidArgumentError where no run can have it."""
    if not re.fullmatch(ID_PATTERN, value):
        raise InvalidArgumentError.of(
            "run_id",
            f"{shown(value)} is refused: an id has 1 to 128 letters, digits, dots, dashes and underscores; "
            'for example "run_01"',
        )
    return value


def cancel_request(request: pb.CancelRunRequest) -> tuple[str, float | None]:
    """The run id and the grace in seconds, None where there is none. Raises InvalidArgumentError."""
    violations: list[FieldViolation] = []
    try:
        run_id(request.run_id)
    except InvalidArgumentError as error:
        violations.extend(error.violations)
    grace = _seconds(request.grace) if request.HasField("grace") else None
    if grace is not None and not 0 <= grace <= MAX_GRACE_SECONDS:
        violations.append(
            FieldViolation(
                "grace",
                f"{grace:g} s is refused: must be from 0 s to {MAX_GRACE_SECONDS:g} s; for example 30 s, or "
                "unset to stop at once",
            )
        )
    if violations:
        raise InvalidArgumentError(violations)
    return request.run_id, grace


def run_message(view: RunView) -> pb.Run:
    """A run as it travels."""
    return pb.Run(
        run_id=view.run_id,
        job_id=view.job_id,
        attempt=view.attempt,
        state=_STATES[view.state],
        step=view.step,
        total_steps=view.total_steps,
        last_sequence=view.last_sequence,
        error=_error_message(view.error),
        status_detail=view.status_detail,
    )


def device_message(device: Device) -> pb.Device:
    """An accelerator as it travels."""
    return pb.Device(name=device.name, memory_bytes=device.memory_bytes)


def event_message(record: JournalRecord) -> pb.StreamRunEventsResponse:
    """A journal entry as it travels."""
    message = pb.StreamRunEventsResponse(sequence=record.sequence)
    message.event_time.FromDatetime(record.written_at)
    match record.entry:
        case RunStateChanged(state, error, reason):
            message.state_changed.CopyFrom(
                pb.RunStateChanged(state=_STATES[state], error=_error_message(error), reason=reason)
            )
        case StepCompleted(step, total_steps, metrics):
            message.step_completed.CopyFrom(
                pb.StepCompleted(step=step, total_steps=total_steps, metrics=metrics)
            )
        case CheckpointSaved(step, uri, size_bytes, sha256):
            message.checkpoint_saved.CopyFrom(
                pb.CheckpointSaved(step=step, uri=uri, size_bytes=size_bytes, sha256=sha256)
            )
        case CheckpointRemoved(step, uri):
            message.checkpoint_removed.CopyFrom(pb.CheckpointRemoved(step=step, uri=uri))
        case CompletionsWritten(step, uri, row_count, size_bytes, sha256):
            message.completions_written.CopyFrom(
                pb.CompletionsWritten(
                    step=step, uri=uri, row_count=row_count, size_bytes=size_bytes, sha256=sha256
                )
            )
        case EvaluationFinished(step, metrics, completions):
            message.evaluation_finished.CopyFrom(
                pb.EvaluationFinished(
                    step=step,
                    metrics=dict(metrics),
                    completions=None if completions is None else pb.CompletionsWritten(**asdict(completions)),
                )
            )
        case LogLine(level, text, fields):
            record_json = json.dumps({**fields, "level": level, "message": text}, ensure_ascii=False)
            message.log_line.CopyFrom(pb.LogLine(record_json=record_json))
        case PreflightFinished(report):
            message.preflight_finished.CopyFrom(pb.PreflightFinished(report_json=report.model_dump_json()))
        case ModelExported(step, model, error):
            message.model_exported.CopyFrom(
                pb.ModelExported(step=step, model=_model_message(model), error=_error_message(error))
            )
        case MemoryEstimated(estimate):
            message.memory_estimated.CopyFrom(pb.MemoryEstimated(estimate_json=estimate.model_dump_json()))
    return message


def export_request(request: pb.ExportCheckpointRequest, artifact_root: Path) -> ExportRequest:
    """What ExportCheckpoint asks for. Raises InvalidArgumentError with every wrong field."""
    violations: list[FieldViolation] = []
    spec = None
    try:
        spec, wrong = check_run_spec(parse_json_object(request.spec_json, "spec_json"), "spec_json")
        violations.extend(wrong)
    except InvalidArgumentError as error:
        violations.extend(error.violations)
    asked = None
    try:
        asked = ExportRequest.model_validate(
            {
                "job_id": request.job_id,
                "spec": spec,
                "checkpoint_uri": request.checkpoint_uri,
                "target_uri": request.target_uri,
                "form": request.form,
                "dtype": request.dtype,
                "artifact_root": artifact_root,
            }
        )
    except ValidationError as error:
        violations.extend(v for v in violations_of(error, ExportRequest) if v.field != "spec")
    if asked is None or violations:
        raise InvalidArgumentError(violations)
    return asked


def export_message(progress: ExportProgress) -> pb.ExportCheckpointResponse:
    """What has become of an export, as it travels."""
    result = progress.result
    return pb.ExportCheckpointResponse(
        model=None if result is None else _model_message(result.model),
        error=None if result is None else _error_message(result.error),
        status_detail=progress.detail,
    )


def check_request(request: pb.CheckRunRequest) -> AskedRun:
    """What CheckRun asks of. Raises InvalidArgumentError with every wrong field."""
    violations: list[FieldViolation] = []
    if not request.base_model:
        violations.append(FieldViolation("base_model", "is missing; name a model"))
    uris = {"dataset_uri": request.dataset_uri, "eval_dataset_uri": request.eval_dataset_uri}
    for field, uri in uris.items():
        try:
            if uri:
                check_artifact_path(uri)
        except ValueError as error:
            violations.append(FieldViolation(field, f"{shown(uri)} is refused: {error}"))
    hyperparameters = None
    if request.method not in HYPERPARAMETERS:
        violations.append(
            FieldViolation("method", f"{shown(request.method)} is none of {', '.join(HYPERPARAMETERS)}")
        )
    else:
        model = HYPERPARAMETERS[request.method]
        try:
            hyperparameters = model.model_validate_json(request.hyperparameters_json or "{}")
        except ValidationError as error:
            violations.extend(violations_of(error, model, "hyperparameters_json"))
    if hyperparameters is None or violations:
        raise InvalidArgumentError(violations)
    return AskedRun(
        request.base_model, hyperparameters, request.dataset_uri or None, request.eval_dataset_uri or None
    )


def checked_message(checked: CheckedRun) -> pb.CheckRunResponse:
    """What is known of a run that is not started, as it travels."""
    return pb.CheckRunResponse(
        estimate_json="" if checked.estimate is None else checked.estimate.model_dump_json(),
        unknown_reason=checked.unknown_reason,
        obstacles=[pb.Obstacle(field=o.field, message=o.message) for o in checked.obstacles],
        warnings=checked.warnings,
    )


def token_request(request: pb.CountTokensRequest, artifact_root: Path) -> TokenCountRequest:
    """What CountTokens asks for. Raises InvalidArgumentError with every wrong field."""
    try:
        return TokenCountRequest(
            base_model=request.base_model,
            dataset_uri=request.dataset_uri,
            dataset_sha256=request.dataset_sha256,
            row_count=request.row_count,
            max_prompt_length=request.max_prompt_length,
            artifact_root=artifact_root,
        )
    except ValidationError as error:
        raise InvalidArgumentError(list(violations_of(error, TokenCountRequest))) from None


def token_message(count: TokenCount) -> pb.CountTokensResponse:
    """What has become of a count, as it travels."""
    if count.statistics is not None:
        return pb.CountTokensResponse(statistics=pb.TokenStatistics(**asdict(count.statistics)))
    return pb.CountTokensResponse(error=_error_message(count.error))


def _model_message(model: ExportedModel | None) -> pb.ExportedModel | None:
    if model is None:
        return None
    return pb.ExportedModel(
        uri=model.uri,
        kind=model.kind,
        dtype=model.dtype,
        files=[
            pb.ModelFile(path=file.path, size_bytes=file.size_bytes, sha256=file.sha256)
            for file in model.files
        ],
    )


def _error_message(error: RunError | None) -> pb.RunError | None:
    return None if error is None else pb.RunError(code=error.code, message=error.message)


def _seconds(duration: duration_pb2.Duration) -> float:
    return duration.seconds + duration.nanos / 1e9
