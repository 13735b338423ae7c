"""Training jobs: create, read, steer, watch."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import grpc
from google.protobuf.message import Message

from plaudit.client import _convert, models
from plaudit.client._calls import Caller
from plaudit.errors import UnavailableError
from plaudit.gateway.v1 import training_job_service_pb2 as pb
from plaudit.gateway.v1.training_job_service_pb2_grpc import TrainingJobServiceStub
from plaudit.types.statuses import JobStatus

_FIRST_PAUSE_SECONDS: Final = 0.2
_LONGEST_PAUSE_SECONDS: Final = 5.0


class TrainingJobs:
    """`client.training_jobs`."""

    def __init__(self, channel: grpc.Channel, caller: Caller) -> None:
        self._stub = TrainingJobServiceStub(channel)
        self._caller = caller

    def create(
        self,
        *,
        base_model: str,
        dataset_id: str,
        output_name: str,
        rewards: Sequence[Mapping[str, Any]],
        hyperparameters: Mapping[str, Any] | None = None,
        method: str = "grpo",
        resume_from: str | None = None,
        request_id: str | None = None,
        validate_only: bool = False,
    ) -> models.TrainingJob:
        """Queues a job, and returns it.

        A reward is {"server", "reward"} and optionally "name", "weight", "config", "timeout_seconds".
        `request_id` (default: a fresh UUID) makes a repetition return the same job; a lost answer is repeated
        by itself. Raises InvalidArgumentError with every wrong field at once.
        """
        return self.submit(
            {
                "base_model": base_model,
                "dataset_id": dataset_id,
                "output_name": output_name,
                "method": method,
                "hyperparameters": {} if hyperparameters is None else hyperparameters,
                "rewards": rewards,
                "resume_from": resume_from,
            },
            request_id=request_id,
            validate_only=validate_only,
        )

    def submit(
        self, spec: object, *, request_id: str | None = None, validate_only: bool = False
    ) -> models.TrainingJob:
        """As `create`, from JSON-like data, as in a job file."""
        request = _convert.carry(
            pb.CreateTrainingJobRequest,
            {
                "spec": _convert.spec_to_proto(spec),
                "request_id": request_id or str(uuid.uuid4()),
                "validate_only": validate_only,
            },
        )
        return _convert.job_from_proto(self._caller.call(self._stub.CreateTrainingJob, request))

    def get(self, job_id: str) -> models.TrainingJob:
        """A job as it stands; its `metrics` are the newest sample."""
        return self._job(self._stub.GetTrainingJob, _convert.carry(pb.GetTrainingJobRequest, {"id": job_id}))

    def list(self, *, statuses: Sequence[JobStatus] = ()) -> Iterator[models.TrainingJob]:
        """Jobs, newest first; pages are fetched as they are needed."""
        request = pb.ListTrainingJobsRequest(
            page_size=100, statuses=[_convert.status_to_proto(status) for status in statuses]
        )
        while True:
            page = self._caller.call(self._stub.ListTrainingJobs, request)
            yield from map(_convert.job_from_proto, page.training_jobs)
            if not page.next_page_token:
                return
            request.page_token = page.next_page_token

    def pause(self, job_id: str) -> models.TrainingJob:
        """Asks for a checkpoint at the next generation boundary, and for the trainer to be freed."""
        return self._job(
            self._stub.PauseTrainingJob, _convert.carry(pb.PauseTrainingJobRequest, {"id": job_id})
        )

    def resume(self, job_id: str) -> models.TrainingJob:
        """Queues a paused or failed job again, from its newest checkpoint.

        Called once: after a lost answer the job may be queued already, and a second call would be refused.
        """
        response = self._caller.call_once(
            self._stub.ResumeTrainingJob, _convert.carry(pb.ResumeTrainingJobRequest, {"id": job_id})
        )
        return _convert.job_from_proto(response)

    def cancel(self, job_id: str) -> models.TrainingJob:
        """Asks a job to stop; it is cancelled when its process is gone."""
        return self._job(
            self._stub.CancelTrainingJob, _convert.carry(pb.CancelTrainingJobRequest, {"id": job_id})
        )

    def metrics(
        self,
        job_id: str,
        *,
        keys: Sequence[str] = (),
        from_step: int = 0,
        to_step: int = 0,
        max_points: int = 0,
    ) -> models.MetricSeries:
        """Metric series; 0 for `from_step`, `to_step`, `max_points` means start, end, 500."""
        request = _convert.carry(
            pb.GetTrainingJobMetricsRequest,
            {
                "id": job_id,
                "keys": keys,
                "from_step": from_step,
                "to_step": to_step,
                "max_points": max_points,
            },
        )
        return _convert.series_from_proto(self._caller.call(self._stub.GetTrainingJobMetrics, request))

    def completions(self, job_id: str, *, step: int = 0) -> Iterator[models.ScoredCompletion]:
        """Scored completions of a step (0: of all, newest first); pages are fetched as they are needed."""
        request = _convert.carry(pb.ListCompletionsRequest, {"id": job_id, "step": step, "page_size": 100})
        while True:
            page = self._caller.call(self._stub.ListCompletions, request)
            yield from map(_convert.completion_from_proto, page.completions)
            if not page.next_page_token:
                return
            request.page_token = page.next_page_token

    def watch(
        self,
        job_id: str,
        *,
        after_cursor: str = "",
        kinds: Sequence[str] = (),
        reconnect_seconds: float = 300.0,
    ) -> Iterator[models.JobEvent]:
        """The job's events after a cursor (empty: from the start), each once, until it is over.

        A broken stream is resumed after the last event that was seen; a gateway that stays away for longer
        than `reconnect_seconds` raises UnavailableError.
        """
        cursor = after_cursor
        broken_since: float | None = None
        pause = _FIRST_PAUSE_SECONDS
        while True:
            stream = self._stub.WatchTrainingJob(
                _convert.carry(
                    pb.WatchTrainingJobRequest, {"id": job_id, "after_cursor": cursor, "kinds": kinds}
                )
            )
            try:
                for message in stream:
                    broken_since, pause = None, _FIRST_PAUSE_SECONDS
                    cursor = message.cursor
                    event = _convert.event_from_proto(message)
                    if event is not None:
                        yield event
                return
            except grpc.RpcError as failure:
                error = self._caller.error(failure)
                if not isinstance(error, UnavailableError):
                    raise error from None
                broken_since = broken_since or time.monotonic()
                if time.monotonic() - broken_since > reconnect_seconds:
                    raise error from None
            finally:
                stream.cancel()
            time.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE_SECONDS)

    def wait(self, job_id: str) -> models.TrainingJob:
        """Blocks until the job is over, and returns it."""
        for _ in self.watch(job_id, kinds=("status_changed",)):
            pass
        return self.get(job_id)

    def _job(self, method: grpc.UnaryUnaryMultiCallable[Any, Any], request: Message) -> models.TrainingJob:
        return _convert.job_from_proto(self._caller.call(method, request))
