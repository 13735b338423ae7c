"""plaudit.gateway.v1.TrainingJobService."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import grpc.aio

from gateway.domain import Gateway
from gateway.servicers import _convert
from plaudit.errors import FieldViolation, InvalidArgumentError
from plaudit.gateway.v1 import training_job_pb2, training_job_service_pb2
from plaudit.gateway.v1.training_job_service_pb2_grpc import TrainingJobServiceServicer

Context = grpc.aio.ServicerContext[Any, Any]


class TrainingJobs(TrainingJobServiceServicer):
    """Converts, calls the domain, converts back."""

    def __init__(self, gateway: Gateway) -> None:
        self._jobs = gateway.jobs
        self._events = gateway.events
        self._log = gateway.job_log

    async def CreateTrainingJob(
        self, request: training_job_service_pb2.CreateTrainingJobRequest, context: Context
    ) -> training_job_pb2.TrainingJob:
        violations: list[FieldViolation] = []
        job = await self._jobs.create(
            _convert.job_request_to_data(request, violations),
            request_id=request.request_id or None,
            validate_only=request.validate_only,
            known_violations=violations,
        )
        return _convert.job_to_proto(job)

    async def GetTrainingJob(
        self, request: training_job_service_pb2.GetTrainingJobRequest, context: Context
    ) -> training_job_pb2.TrainingJob:
        return _convert.job_to_proto(await self._jobs.get(request.id))

    async def ListTrainingJobs(
        self, request: training_job_service_pb2.ListTrainingJobsRequest, context: Context
    ) -> training_job_service_pb2.ListTrainingJobsResponse:
        page = await self._jobs.list(
            limit=request.page_size,
            after=request.page_token,
            statuses=_convert.statuses_from_proto(request.statuses),
            method=_convert.method_from_proto(request.method),
        )
        return training_job_service_pb2.ListTrainingJobsResponse(
            training_jobs=[_convert.job_to_proto(job) for job in page.items],
            next_page_token=page.next_page_token,
        )

    async def PauseTrainingJob(
        self, request: training_job_service_pb2.PauseTrainingJobRequest, context: Context
    ) -> training_job_pb2.TrainingJob:
        return _convert.job_to_proto(await self._jobs.pause(request.id))

    async def ResumeTrainingJob(
        self, request: training_job_service_pb2.ResumeTrainingJobRequest, context: Context
    ) -> training_job_pb2.TrainingJob:
        return _convert.job_to_proto(await self._jobs.resume(request.id))

    async def CancelTrainingJob(
        self, request: training_job_service_pb2.CancelTrainingJobRequest, context: Context
    ) -> training_job_pb2.TrainingJob:
        return _convert.job_to_proto(await self._jobs.cancel(request.id))

    async def CloneTrainingJob(
        self, request: training_job_service_pb2.CloneTrainingJobRequest, context: Context
    ) -> training_job_pb2.TrainingJob:
        job = await self._jobs.clone(
            request.id,
            _convert.overrides_to_data(request.overrides_json),
            request_id=request.request_id or None,
            validate_only=request.validate_only,
        )
        return _convert.job_to_proto(job)

    async def DeleteTrainingJob(
        self, request: training_job_service_pb2.DeleteTrainingJobRequest, context: Context
    ) -> training_job_service_pb2.DeleteTrainingJobResponse:
        await self._jobs.delete(request.id)
        return training_job_service_pb2.DeleteTrainingJobResponse()

    async def HeartbeatTrainingJob(
        self, request: training_job_service_pb2.HeartbeatTrainingJobRequest, context: Context
    ) -> training_job_pb2.TrainingJob:
        return _convert.job_to_proto(await self._jobs.heartbeat(request.id))

    async def ListTrainingJobEvents(
        self, request: training_job_service_pb2.ListTrainingJobEventsRequest, context: Context
    ) -> training_job_service_pb2.ListTrainingJobEventsResponse:
        page = await self._events.page(request.id, limit=request.page_size, page_token=request.page_token)
        return training_job_service_pb2.ListTrainingJobEventsResponse(
            events=[_convert.event_to_proto(event) for event in page.items],
            next_page_token=page.next_page_token,
        )

    async def StreamTrainingJobLog(
        self, request: training_job_service_pb2.StreamTrainingJobLogRequest, context: Context
    ) -> AsyncIterator[training_job_service_pb2.LogText]:
        if request.follow:
            lines = await self._log.follow(request.id, after_cursor=request.after_cursor)
        else:
            _, lines = await self._log.so_far(request.id)
        async for line in lines:
            yield training_job_service_pb2.LogText(line=line.text, cursor=line.cursor)

    async def WatchTrainingJob(
        self, request: training_job_service_pb2.WatchTrainingJobRequest, context: Context
    ) -> AsyncIterator[training_job_service_pb2.TrainingJobEvent]:
        async for event in await self._events.watch(request.id, request.after_cursor, request.kinds):
            yield _convert.event_to_proto(event)

    async def WatchEvents(
        self, request: training_job_service_pb2.WatchEventsRequest, context: Context
    ) -> AsyncIterator[training_job_service_pb2.TrainingJobEvent]:
        async for event in await self._events.watch(None, request.after_cursor, request.kinds):
            yield _convert.event_to_proto(event)

    async def GetTrainingJobMetrics(
        self, request: training_job_service_pb2.GetTrainingJobMetricsRequest, context: Context
    ) -> training_job_service_pb2.GetTrainingJobMetricsResponse:
        series = await self._jobs.metrics(
            request.id,
            keys=request.keys,
            from_step=request.from_step,
            to_step=_step(request.to_step, "to_step", before_first=request.before_first_step),
            max_points=request.max_points,
        )
        return _convert.series_to_proto(series)

    async def ListCompletions(
        self, request: training_job_service_pb2.ListCompletionsRequest, context: Context
    ) -> training_job_service_pb2.ListCompletionsResponse:
        page = await self._jobs.completions(
            request.id,
            step=_step(request.step, "step", before_first=request.before_first_step),
            limit=request.page_size,
            page_token=request.page_token,
            evaluations=request.evaluations,
        )
        return training_job_service_pb2.ListCompletionsResponse(
            completions=[_convert.completion_to_proto(completion) for completion in page.items],
            next_page_token=page.next_page_token,
        )


def _step(value: int, field: str, *, before_first: bool) -> int | None:
    """The step that a request asks for; None: it names none. Raises InvalidArgumentError."""
    if before_first and value:
        raise InvalidArgumentError.of(
            field, f"{value} and before_first_step ask for different steps; leave one of them out"
        )
    return 0 if before_first else value or None
