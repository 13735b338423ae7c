"""Training jobs: create, read, steer, watch."""

from __future__ import annotations

import math
import time
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Final, Generic, TypeVar

from google.protobuf.message import Message

from plaudit import service
from plaudit.client import _convert, models
from plaudit.client._blocking import Blocking, blocking, blocking_iterator
from plaudit.client._jobs import AsyncJob, Job
from plaudit.client._resuming import SeenLines, resumed
from plaudit.client._wire import Wire
from plaudit.errors import DeadlineExceededError, InvalidArgumentError, PlauditError
from plaudit.gateway.v1 import model_service_pb2, training_job_pb2
from plaudit.gateway.v1 import training_job_service_pb2 as pb
from plaudit.gateway.v1.model_service_pb2_grpc import ModelServiceStub
from plaudit.gateway.v1.training_job_service_pb2_grpc import TrainingJobServiceStub
from plaudit.types.statuses import JobStatus

JobT = TypeVar("JobT", bound=models.TrainingJob)

_RECONNECT_SECONDS: Final = 300.0
_PROGRESS_SECONDS: Final = 1.0


class TrainingJobCalls(Generic[JobT]):
    """What both kinds of `client.training_jobs` can do; `handle` makes of a job what they return."""

    def __init__(self, wire: Wire, handle: Callable[[models.TrainingJob], JobT]) -> None:
        self._stub = TrainingJobServiceStub(wire.channel)
        self._models = ModelServiceStub(wire.channel)
        self._wire = wire
        self._handle = handle

    async def create(
        self,
        *,
        base_model: str,
        dataset_id: str,
        output_name: str,
        rewards: Sequence[Mapping[str, Any]] = (),
        reward_sources: Sequence[str] = (),
        reward_function_ids: Sequence[str] = (),
        reward_weights: Sequence[float] = (),
        hyperparameters: Mapping[str, Any] | None = None,
        method: str = "grpo",
        resume_from: str | None = None,
        preflight: str = "stop",
        requires_heartbeat: bool = False,
        request_id: str | None = None,
        validate_only: bool = False,
    ) -> JobT:
        """Queues a job, and returns it.

        A reward is {"server", "reward"} and optionally "name", "weight", "config", "timeout_seconds",
        "max_attempts", "retry_seconds". Instead of rewards, a job may have `reward_sources` (texts of Python
        files) or `reward_function_ids` (ids or names of uploaded ones), with `reward_weights` if wanted.
        `resume_from` without any of them takes the rewards of that job.
        `preflight` says what critical findings before the first step do: "stop" or "warn"; "off" is none.
        `request_id` (default: a fresh UUID) makes a repetition return the same job; a lost answer is repeated
        by itself. With `requires_heartbeat` the job is cancelled where `heartbeat`, once it was called, is
        not called for some minutes. Raises InvalidArgumentError with every wrong field at once.
        """
        return await self.submit(
            {
                "base_model": base_model,
                "dataset_id": dataset_id,
                "output_name": output_name,
                "method": method,
                "hyperparameters": {} if hyperparameters is None else hyperparameters,
                "rewards": rewards,
                "resume_from": resume_from,
                "preflight": preflight,
                "reward_sources": reward_sources,
                "reward_function_ids": reward_function_ids,
                "reward_weights": reward_weights,
                "requires_heartbeat": requires_heartbeat,
            },
            request_id=request_id,
            validate_only=validate_only,
        )

    async def submit(
        self, spec: object, *, request_id: str | None = None, validate_only: bool = False
    ) -> JobT:
        """As `create`, from JSON-like data, as in a job file.

        Data that no message can carry is refused here, with what the gateway has to say of the rest of it,
        where there is one.
        """
        try:
            request = _convert.job_request_to_proto(
                spec, {"request_id": request_id or str(uuid.uuid4()), "validate_only": validate_only}
            )
        except InvalidArgumentError as refused:
            raise await self._refused_by_both(spec, refused) from None
        return await self._job(self._stub.CreateTrainingJob, request)

    async def clone(
        self,
        job_id: str,
        overrides: Mapping[str, Any] | None = None,
        *,
        request_id: str | None = None,
        validate_only: bool = False,
    ) -> JobT:
        """Queues a job as this one, but for `overrides`, and returns it.

        Overrides are as in a job file: hyperparameters one by one, None for the default, every other field as
        a whole; {"resume_from": None} starts from the base model, {"resume_from": job_id} from the newest
        checkpoint of the job that is cloned. `request_id` is as in `create`.
        """
        request = _convert.carry(
            pb.CloneTrainingJobRequest,
            {
                "id": job_id,
                "overrides_json": _convert.json_text("overrides", overrides or {}),
                "request_id": request_id or str(uuid.uuid4()),
                "validate_only": validate_only,
            },
        )
        return await self._job(self._stub.CloneTrainingJob, request)

    async def delete(self, job_id: str) -> None:
        """Deletes a job that is over, with its checkpoints, completions and rescores."""
        await self._wire.call_once(
            self._stub.DeleteTrainingJob, _convert.carry(pb.DeleteTrainingJobRequest, {"id": job_id})
        )

    async def heartbeat(self, job_id: str) -> JobT:
        """Says that the job's client is alive: see `requires_heartbeat` in `create`."""
        return await self._job(
            self._stub.HeartbeatTrainingJob, _convert.carry(pb.HeartbeatTrainingJobRequest, {"id": job_id})
        )

    async def events(self, job_id: str) -> AsyncIterator[models.JobEvent]:
        """What happened to a job but for its steps, newest first; pages are fetched as they are needed."""
        request = _convert.carry(pb.ListTrainingJobEventsRequest, {"id": job_id, "page_size": 100})
        async for page in self._wire.pages(self._stub.ListTrainingJobEvents, request):
            for message in page.events:
                event = _convert.event_from_proto(message)
                if event is not None:
                    yield event

    async def logs(
        self, job_id: str, *, follow: bool = False, reconnect_seconds: float = 300.0
    ) -> AsyncIterator[str]:
        """The job's log, line by line; with `follow` until the job is over. The last line of a job that is
        over says how it ended, for example "[Job completed]".

        A log that is followed over a broken connection goes on behind the last event that was read to its
        end; a gateway that stays away for longer than `reconnect_seconds` raises UnavailableError.
        """
        request = _convert.carry(pb.StreamTrainingJobLogRequest, {"id": job_id, "follow": follow})
        seen = SeenLines()

        def rest() -> pb.StreamTrainingJobLogRequest:
            return pb.StreamTrainingJobLogRequest(id=job_id, follow=True, after_cursor=seen.reopen())

        messages = (
            resumed(self._wire, self._stub.StreamTrainingJobLog, rest, reconnect_seconds)
            if follow
            else self._wire.stream(self._stub.StreamTrainingJobLog, request)
        )
        async with aclosing(messages):
            async for message in messages:
                if seen.is_new(message):
                    yield message.line

    async def get(self, job_id: str) -> JobT:
        """A job as it stands; its `metrics` are the newest sample."""
        return await self._job(
            self._stub.GetTrainingJob, _convert.carry(pb.GetTrainingJobRequest, {"id": job_id})
        )

    async def list(self, *, statuses: Sequence[JobStatus] = (), method: str = "") -> AsyncIterator[JobT]:
        """Jobs, newest first, all or those of some statuses or a method; pages are fetched as they are
        needed.
        """
        request = _convert.carry(
            pb.ListTrainingJobsRequest,
            {
                "page_size": 100,
                "statuses": [
                    _convert.status_to_proto(status) for status in _convert.statuses_of("statuses", statuses)
                ],
                "method": method,
            },
        )
        async for page in self._wire.pages(self._stub.ListTrainingJobs, request):
            for item in page.training_jobs:
                yield self._handle(_convert.job_from_proto(item))

    async def pause(self, job_id: str) -> JobT:
        """Asks for a checkpoint at the next generation boundary, and for the trainer to be freed."""
        return await self._job(
            self._stub.PauseTrainingJob, _convert.carry(pb.PauseTrainingJobRequest, {"id": job_id})
        )

    async def resume(self, job_id: str) -> JobT:
        """Queues a paused or failed job again, from its newest checkpoint.

        Called once: after a lost answer the job may be queued already, and a second call would be refused.
        """
        response = await self._wire.call_once(
            self._stub.ResumeTrainingJob, _convert.carry(pb.ResumeTrainingJobRequest, {"id": job_id})
        )
        return self._handle(_convert.job_from_proto(response))

    async def cancel(self, job_id: str) -> JobT:
        """Asks a job to stop; it is cancelled when its process is gone."""
        return await self._job(
            self._stub.CancelTrainingJob, _convert.carry(pb.CancelTrainingJobRequest, {"id": job_id})
        )

    async def metrics(
        self,
        job_id: str,
        *,
        keys: Sequence[str] = (),
        from_step: int = 0,
        to_step: int | None = None,
        max_points: int = 0,
    ) -> models.MetricSeries:
        """Metric series, of `keys` or all; a key that the job has no metric of is logged as a warning.

        `to_step` None: to the end; 0: only the evaluation before the first step. `max_points` 0: 500.
        """
        request = _convert.carry(
            pb.GetTrainingJobMetricsRequest,
            {
                "id": job_id,
                "keys": keys,
                "from_step": from_step,
                "to_step": to_step,
                "before_first_step": to_step == 0,
                "max_points": max_points,
            },
        )
        series = _convert.series_from_proto(await self._wire.call(self._stub.GetTrainingJobMetrics, request))
        unknown = [key for key in keys if key not in series.available_keys]
        if unknown and series.available_keys:
            service.get_logger("plaudit.client").warning(
                "no metric of this name yet", keys=unknown, there_is=list(series.available_keys)
            )
        return series

    async def completions(
        self, job_id: str, *, step: int | None = None, evaluations: bool = False
    ) -> AsyncIterator[models.ScoredCompletion]:
        """Scored completions of a step (None: of all, newest first); pages are fetched as they are needed.

        With `evaluations` those of evaluations, instead of those that were learnt from; `step` 0 is then the
        one before the first step.
        """
        request = _convert.carry(
            pb.ListCompletionsRequest,
            {
                "id": job_id,
                "step": step,
                "page_size": 100,
                "evaluations": evaluations,
                "before_first_step": evaluations and step == 0,
            },
        )
        async for page in self._wire.pages(self._stub.ListCompletions, request):
            for item in page.completions:
                yield _convert.completion_from_proto(item)

    async def checkpoints(self, job_id: str) -> AsyncIterator[models.Checkpoint]:
        """The checkpoints of a job that are there, newest step first; pages are fetched as needed."""
        request = _convert.carry(
            model_service_pb2.ListCheckpointsRequest,
            {"job_id": job_id, "page_size": 100},
            required=("job_id",),
        )
        async for page in self._wire.pages(self._models.ListCheckpoints, request):
            for item in page.checkpoints:
                yield _convert.checkpoint_from_proto(item)

    async def watch(
        self,
        job_id: str,
        *,
        after_cursor: str = "",
        kinds: Sequence[str] = (),
        reconnect_seconds: float = 300.0,
    ) -> AsyncIterator[models.JobEvent]:
        """The job's events after a cursor (empty: from the start), each once, until it is over.

        A broken stream is resumed after the last event that was seen; a gateway that stays away for longer
        than `reconnect_seconds` raises UnavailableError.
        """
        async with aclosing(self._events(job_id, after_cursor, kinds, reconnect_seconds)) as messages:
            async for message in messages:
                event = _convert.event_from_proto(message)
                if event is not None:
                    yield event

    async def watch_all(
        self,
        *,
        after_cursor: str = "",
        kinds: Sequence[str] = (),
        reconnect_seconds: float = 300.0,
    ) -> AsyncIterator[models.JobEvent]:
        """The events of all jobs after a cursor (empty: only new ones), each once, without an end.

        A broken stream is resumed as in `watch`.
        """
        cursor = after_cursor

        def rest() -> pb.WatchEventsRequest:
            return _convert.carry(pb.WatchEventsRequest, {"after_cursor": cursor, "kinds": kinds})

        messages = resumed(self._wire, self._stub.WatchEvents, rest, reconnect_seconds)
        async with aclosing(messages):
            async for message in messages:
                cursor = message.cursor
                event = _convert.event_from_proto(message)
                if event is not None:
                    yield event

    async def wait(
        self,
        job_id: str,
        *,
        timeout: float | None = None,
        until: Collection[JobStatus] = (),
        on_progress: Callable[[models.TrainingJob], object] | None = None,
    ) -> JobT:
        """Waits until the job is over (completed, failed or cancelled), or has a status of `until`, and
        returns it.

        `on_progress` is told how it stands: at most once a second while it goes on, and at its end. Raises
        DeadlineExceededError (WAIT_TIMED_OUT) after `timeout` seconds; the job goes on.
        """
        kinds = ("status_changed",) if on_progress is None else ("status_changed", "step_metrics")
        wanted = frozenset(_convert.statuses_of("until", until))
        give_up = None if timeout is None else time.monotonic() + timeout
        told_at = -math.inf
        try:
            async with aclosing(self._events(job_id, "", kinds, _RECONNECT_SECONDS, give_up)) as messages:
                async for message in messages:
                    event = _convert.event_from_proto(message)
                    # The events begin with the first: what they tell may be long past.
                    may_end = event is not None and _has_status(event, wanted)
                    is_due = on_progress is not None and time.monotonic() - told_at >= _PROGRESS_SECONDS
                    if may_end or is_due:
                        job = await self.get(job_id)
                        if job.status in wanted:
                            break
                        if on_progress is not None and is_due:
                            on_progress(job)
                            told_at = time.monotonic()
        except DeadlineExceededError:
            raise DeadlineExceededError(
                f"after {timeout:g} s job {job_id} is not over; wait on, or cancel it",
                reason="WAIT_TIMED_OUT",
            ) from None
        job = await self.get(job_id)
        if on_progress is not None:
            on_progress(job)
        return job

    async def _events(
        self,
        job_id: str,
        after_cursor: str,
        kinds: Sequence[str],
        reconnect_seconds: float,
        give_up: float | None = None,
    ) -> AsyncGenerator[pb.TrainingJobEvent, None]:
        cursor = after_cursor

        def rest() -> pb.WatchTrainingJobRequest:
            return _convert.carry(
                pb.WatchTrainingJobRequest, {"id": job_id, "after_cursor": cursor, "kinds": kinds}
            )

        messages = resumed(self._wire, self._stub.WatchTrainingJob, rest, reconnect_seconds, give_up=give_up)
        async with aclosing(messages):
            async for message in messages:
                cursor = message.cursor
                yield message

    async def _refused_by_both(self, spec: object, refused: InvalidArgumentError) -> InvalidArgumentError:
        try:
            await self._wire.call_once(self._stub.CreateTrainingJob, _convert.remainder_of_job(spec))
        except InvalidArgumentError as told:
            return _convert.refused_by_both(spec, refused, told)
        except PlauditError:
            pass
        return refused

    async def _job(self, method: Callable[..., training_job_pb2.TrainingJob], request: Message) -> JobT:
        return self._handle(_convert.job_from_proto(await self._wire.call(method, request)))


def _has_status(event: models.JobEvent, statuses: Collection[JobStatus]) -> bool:
    return isinstance(event.body, models.StatusChanged) and event.body.status in statuses


class AsyncTrainingJobs(TrainingJobCalls[AsyncJob]):
    """`client.training_jobs` of an `AsyncClient`."""

    def __init__(self, wire: Wire) -> None:
        super().__init__(wire, lambda job: AsyncJob._of(job, self))


class TrainingJobs(Blocking[TrainingJobCalls[Job]]):
    """`client.training_jobs`."""

    def __init__(self, wire: Wire) -> None:
        super().__init__(TrainingJobCalls(wire, lambda job: Job._of(job, self)))

    create = blocking(TrainingJobCalls[Job].create)
    submit = blocking(TrainingJobCalls[Job].submit)
    clone = blocking(TrainingJobCalls[Job].clone)
    delete = blocking(TrainingJobCalls[Job].delete)
    heartbeat = blocking(TrainingJobCalls[Job].heartbeat)
    events = blocking_iterator(TrainingJobCalls[Job].events)
    logs = blocking_iterator(TrainingJobCalls[Job].logs)
    get = blocking(TrainingJobCalls[Job].get)
    list = blocking_iterator(TrainingJobCalls[Job].list)
    pause = blocking(TrainingJobCalls[Job].pause)
    resume = blocking(TrainingJobCalls[Job].resume)
    cancel = blocking(TrainingJobCalls[Job].cancel)
    metrics = blocking(TrainingJobCalls[Job].metrics)
    completions = blocking_iterator(TrainingJobCalls[Job].completions)
    checkpoints = blocking_iterator(TrainingJobCalls[Job].checkpoints)
    watch = blocking_iterator(TrainingJobCalls[Job].watch)
    watch_all = blocking_iterator(TrainingJobCalls[Job].watch_all)
    wait = blocking(TrainingJobCalls[Job].wait)
