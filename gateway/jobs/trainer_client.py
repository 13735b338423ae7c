"""Speaks plaudit.trainer.v1 with one trainer; everything beyond this file is plain data."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import TYPE_CHECKING, Final, TypeVar

import grpc
import grpc.aio
from pydantic import ValidationError

from gateway.jobs.job import JobError
from gateway.jobs.journal import (
    CheckedRun,
    CheckpointRemoved,
    CheckpointWritten,
    CompletionsWritten,
    EvaluationFinished,
    ExportedModel,
    ExportProgress,
    JournalEntry,
    JournalEvent,
    LogRecord,
    MemoryEstimated,
    ModelExported,
    PreflightFinished,
    ReportedRun,
    RunStateChanged,
    StepCompleted,
    TokenCount,
    TrainerInfo,
    UnknownEntry,
)
from gateway.jobs.trainer_access import TrainerDoor, dial, endpoint_of, open_door
from gateway.models.model import Model, ModelFile, ModelKind
from gateway.store.datasets import StoredDataset
from plaudit.errors import (
    FieldViolation,
    InternalError,
    PlauditError,
    UnauthenticatedError,
    UnavailableError,
)
from plaudit.rpc import error_from_rpc, time_of
from plaudit.trainer.v1 import trainer_service_pb2 as pb
from plaudit.trainer.v1.trainer_service_pb2_grpc import TrainerServiceStub
from plaudit.types.memory import MemoryEstimate
from plaudit.types.methods import Hyperparameters
from plaudit.types.preflight import PreflightReport
from plaudit.types.statuses import ErrorCode, RunState
from plaudit.types.token_statistics import TokenStatistics

if TYPE_CHECKING:
    from plaudit.trainer.v1.trainer_service_pb2_grpc import TrainerServiceAsyncStub

Answer = TypeVar("Answer")

UNREADABLE_JOURNAL: Final = "JOURNAL_UNREADABLE"
"""Reason of the error where an entry makes no sense."""

_CALL_SECONDS: Final = 5.0
# These wait for processes: a new one, and the old one of the same job; or one that is about to leave.
_START_SECONDS: Final = 30.0
_UNSLOTH_SECONDS: Final = 20.0
_CANCEL_SECONDS: Final = 30.0
_DELETE_SECONDS: Final = 30.0

_STATES: Final = {
    pb.RUN_STATE_STARTING: RunState.STARTING,
    pb.RUN_STATE_RUNNING: RunState.RUNNING,
    pb.RUN_STATE_PAUSING: RunState.PAUSING,
    pb.RUN_STATE_PAUSED: RunState.PAUSED,
    pb.RUN_STATE_CANCELLING: RunState.CANCELLING,
    pb.RUN_STATE_CANCELLED: RunState.CANCELLED,
    pb.RUN_STATE_COMPLETED: RunState.COMPLETED,
    pb.RUN_STATE_FAILED: RunState.FAILED,
}


_UNKNOWN_MODEL: Final = ExportProgress(
    error=JobError(
        ErrorCode.MODEL_ERROR, "the trainer makes models of a kind that this gateway does not know"
    )
)


class TrainerClient:
    """Calls to the trainer at `address`. Every call has a deadline and raises PlauditError where it fails."""

    def __init__(self, address: str, door: TrainerDoor = open_door) -> None:
        """Raises FailedPreconditionError where a secret that `door` names is missing."""
        self.address = address
        self._door = door
        self._was_refused = False
        self._dial()

    async def close(self) -> None:
        """Ends all calls."""
        await self._channel.close()

    async def get_info(self) -> TrainerInfo:
        """What the trainer says of itself."""
        answer = await self._call(lambda stub: stub.GetTrainerInfo, pb.GetTrainerInfoRequest())
        return TrainerInfo(answer.trainer_id, answer.trainer_version, answer.max_concurrent_runs)

    async def list_runs(self) -> list[ReportedRun]:
        """Every run that the trainer holds."""
        answer = await self._call(lambda stub: stub.ListRuns, pb.ListRunsRequest())
        return [_reported(run) for run in answer.runs]

    async def start_run(
        self, *, run_id: str, job_id: str, attempt: int, spec_json: str, checkpoint_uri: str
    ) -> ReportedRun:
        """Starts a run, or returns it where it was started already."""
        request = pb.StartRunRequest(
            run_id=run_id,
            job_id=job_id,
            attempt=attempt,
            spec_json=spec_json,
            checkpoint_uri=checkpoint_uri,
        )
        return _reported((await self._call(lambda stub: stub.StartRun, request, _START_SECONDS)).run)

    async def pause_run(self, run_id: str) -> ReportedRun:
        """Asks a run to pause."""
        request = pb.PauseRunRequest(run_id=run_id)
        return _reported((await self._call(lambda stub: stub.PauseRun, request)).run)

    async def cancel_run(self, run_id: str) -> ReportedRun:
        """Asks a run to stop; one that the trainer does not know will never start there."""
        request = pb.CancelRunRequest(run_id=run_id)
        return _reported((await self._call(lambda stub: stub.CancelRun, request, _CANCEL_SECONDS)).run)

    async def delete_run(self, run_id: str) -> None:
        """Lets the trainer forget a run that is over."""
        request = pb.DeleteRunRequest(run_id=run_id)
        await self._call(lambda stub: stub.DeleteRun, request, _DELETE_SECONDS)

    async def export_checkpoint(self, model: Model, spec_json: str) -> ExportProgress:
        """Has a model exported, or asks what has become of it."""
        request = pb.ExportCheckpointRequest(
            job_id=model.job_id,
            spec_json=spec_json,
            checkpoint_uri=model.checkpoint_uri,
            target_uri=model.uri,
            form=model.form,
            dtype=model.dtype,
        )
        answer = await self._call(lambda stub: stub.ExportCheckpoint, request, _START_SECONDS)
        match answer.WhichOneof("result"):
            case "model":
                exported = _exported(answer.model)
                return ExportProgress(model=exported) if exported else _UNKNOWN_MODEL
            case "error":
                return ExportProgress(error=JobError(answer.error.code, answer.error.message))
            case _:
                return ExportProgress(detail=answer.status_detail)

    async def check_run(
        self,
        base_model: str,
        method: str,
        hyperparameters: Hyperparameters,
        *,
        dataset_uri: str,
        eval_dataset_uri: str,
    ) -> CheckedRun:
        """What stands against a run of such a job there. A file "" is not known, or there is none."""
        request = pb.CheckRunRequest(
            base_model=base_model,
            method=method,
            hyperparameters_json=hyperparameters.model_dump_json(),
            dataset_uri=dataset_uri,
            eval_dataset_uri=eval_dataset_uri,
        )
        # To import unsloth takes a while, once.
        seconds = _UNSLOTH_SECONDS if hyperparameters.use_unsloth else _CALL_SECONDS
        answer = await self._call(lambda stub: stub.CheckRun, request, seconds)
        return CheckedRun(
            _estimate(answer.estimate_json),
            answer.unknown_reason,
            tuple(FieldViolation(obstacle.field, obstacle.message) for obstacle in answer.obstacles),
            tuple(answer.warnings),
        )

    async def count_tokens(
        self, base_model: str, dataset: StoredDataset, max_prompt_length: int
    ) -> TokenCount:
        """Has the tokens of a dataset's prompts counted, or asks what has become of it."""
        request = pb.CountTokensRequest(
            base_model=base_model,
            dataset_uri=dataset.uri,
            dataset_sha256=dataset.sha256,
            row_count=dataset.row_count,
            max_prompt_length=max_prompt_length,
        )
        answer = await self._call(lambda stub: stub.CountTokens, request)
        match answer.WhichOneof("result"):
            case "statistics":
                return TokenCount(_statistics(answer.statistics))
            case "error":
                return TokenCount(error=JobError(answer.error.code, answer.error.message))
            case _:
                return TokenCount()

    async def follow_journal(self, run_id: str, *, after_sequence: int) -> AsyncGenerator[JournalEntry, None]:
        """The run's journal beyond `after_sequence`; ends after the terminal entry.

        Has no deadline of its own: a run may be quiet for as long as it likes, keepalive notices a dead
        trainer, and whoever follows also polls it. Raises InternalError (UNREADABLE_JOURNAL) at an entry that
        makes no sense.
        """
        request = pb.StreamRunEventsRequest(run_id=run_id, after_sequence=after_sequence)
        call = self._stub.StreamRunEvents(request, metadata=self._metadata)
        try:
            async for entry in call:
                yield _entry(entry)
        except grpc.aio.AioRpcError as failure:
            raise self._error(failure) from None
        finally:
            call.cancel()

    async def _call(
        self,
        method: Callable[[TrainerServiceAsyncStub], Callable[..., Awaitable[Answer]]],
        request: object,
        seconds: float = _CALL_SECONDS,
    ) -> Answer:
        if self._was_refused:
            # Its token or certificate may have been renewed on both sides.
            replaced = self._channel
            self._dial()
            await replaced.close(_CALL_SECONDS)
        try:
            return await method(self._stub)(request, timeout=seconds, metadata=self._metadata)
        except grpc.aio.AioRpcError as failure:
            error = self._error(failure)
        if isinstance(error, UnavailableError):
            trouble = await self._credentials.tls_trouble(endpoint_of(self.address), _CALL_SECONDS)
            if trouble is not None:
                self._was_refused = True
                error = UnavailableError(f"trainer {self.address}: {trouble}")
        raise error

    def _error(self, failure: grpc.aio.AioRpcError) -> PlauditError:
        error = error_from_rpc(failure, target=f"trainer {self.address}")
        self._was_refused = self._was_refused or isinstance(error, UnauthenticatedError)
        return error

    def _dial(self) -> None:
        self._credentials = self._door(self.address)
        secured = dial(self.address, self._credentials)
        self._channel, self._metadata = secured.channel, secured.metadata
        self._stub: TrainerServiceAsyncStub = TrainerServiceStub(self._channel)
        self._was_refused = False


def _reported(run: pb.Run) -> ReportedRun:
    return ReportedRun(
        run_id=run.run_id,
        job_id=run.job_id,
        attempt=run.attempt,
        state=_STATES.get(run.state, RunState.RUNNING),
        last_sequence=run.last_sequence,
        status_detail=run.status_detail,
    )


def _entry(entry: pb.StreamRunEventsResponse) -> JournalEntry:
    time = time_of(entry.event_time)
    if time is None:
        raise InternalError(
            f"entry {entry.sequence} of the trainer's journal has {entry.event_time.seconds} s since 1970 as "
            "its time, which is none",
            reason=UNREADABLE_JOURNAL,
        )
    return JournalEntry(entry.sequence, time, _event(entry))


def _event(entry: pb.StreamRunEventsResponse) -> JournalEvent:
    match entry.WhichOneof("event"):
        case "state_changed":
            changed = entry.state_changed
            state = _STATES.get(changed.state)
            if state is None:
                return UnknownEntry()
            failed = state is RunState.FAILED and changed.HasField("error")
            error = JobError(changed.error.code, changed.error.message) if failed else None
            return RunStateChanged(state, error, changed.reason)
        case "step_completed":
            step = entry.step_completed
            return StepCompleted(step.step, step.total_steps, dict(step.metrics))
        case "checkpoint_saved":
            saved = entry.checkpoint_saved
            return CheckpointWritten(saved.step, saved.uri, saved.size_bytes, saved.sha256)
        case "checkpoint_removed":
            return CheckpointRemoved(entry.checkpoint_removed.step, entry.checkpoint_removed.uri)
        case "completions_written":
            return _written(entry.completions_written)
        case "evaluation_finished":
            evaluation = entry.evaluation_finished
            kept = evaluation.HasField("completions")
            return EvaluationFinished(
                evaluation.step,
                dict(evaluation.metrics),
                _written(evaluation.completions) if kept else None,
            )
        case "log_line":
            return LogRecord(entry.log_line.record_json)
        case "preflight_finished":
            try:
                report = PreflightReport.model_validate_json(entry.preflight_finished.report_json)
            except ValidationError:
                return UnknownEntry()
            return PreflightFinished(report)
        case "memory_estimated":
            estimate = _estimate(entry.memory_estimated.estimate_json)
            return MemoryEstimated(estimate) if estimate else UnknownEntry()
        case "model_exported":
            told = entry.model_exported
            model = _exported(told.model) if told.HasField("model") else None
            if told.HasField("model") and model is None:
                return UnknownEntry()
            cause = JobError(told.error.code, told.error.message) if told.HasField("error") else None
            return ModelExported(told.step, model, cause)
        case _:
            return UnknownEntry()


def _written(file: pb.CompletionsWritten) -> CompletionsWritten:
    return CompletionsWritten(file.step, file.uri, file.row_count, file.size_bytes, file.sha256)


def _estimate(text: str) -> MemoryEstimate | None:
    """The estimate, or None where there is none, or one of a newer trainer that is not understood."""
    try:
        return MemoryEstimate.model_validate_json(text) if text else None
    except ValidationError:
        return None


def _statistics(told: pb.TokenStatistics) -> TokenStatistics:
    return TokenStatistics(
        count=told.count,
        min=told.min,
        median=told.median,
        p95=told.p95,
        max=told.max,
        above_limit_count=told.above_limit_count,
        too_long_count=told.too_long_count,
        first_too_long_row=told.first_too_long_row if told.HasField("first_too_long_row") else None,
        max_prompt_length=told.max_prompt_length,
        model_revision=told.model_revision,
    )


def _exported(model: pb.ExportedModel) -> ExportedModel | None:
    """The model, or None for one of a kind that a newer trainer makes."""
    if model.kind not in set(ModelKind) or model.dtype not in ("float32", "bfloat16"):
        return None
    return ExportedModel(
        uri=model.uri,
        kind=ModelKind(model.kind),
        dtype="bfloat16" if model.dtype == "bfloat16" else "float32",
        files=tuple(ModelFile(file.path, file.size_bytes, file.sha256) for file in model.files),
    )
