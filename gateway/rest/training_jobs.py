"""/v1/training_jobs, and the watch over all of them."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import APIRouter, Header, Query, Request, Response

from gateway.domain import Gateway
from gateway.events import KINDS, Alert, AttemptStarted, CheckpointSaved, LogLine, StatusChanged
from gateway.rest import _convert, objects, queries
from gateway.rest.bodies import read_json_object
from gateway.rest.errors import PAGE_FIELDS, fields_named
from gateway.rest.job_requests import spec_data
from gateway.rest.responses import FAILURES, answer
from gateway.rest.watching import watch
from plaudit.errors import InvalidArgumentError

NoQuery = Annotated[queries.NoQuery, Query()]

_EVENTS: Final = 50
_LARGEST_PAGE: Final = 500
_LOGGED_KINDS: Final = tuple(
    KINDS[kind] for kind in (StatusChanged, CheckpointSaved, AttemptStarted, Alert, LogLine)
)


def training_jobs_router(gateway: Gateway) -> APIRouter:
    """Routes over jobs: convert, call the domain, convert back."""
    router = APIRouter(prefix="/v1", tags=["training jobs"], responses=FAILURES)
    jobs = gateway.jobs

    @router.post(
        "/training_jobs",
        response_model=objects.TrainingJobObject,
        openapi_extra={
            "requestBody": {
                "required": True,
                "content": {"application/json": {"schema": {"$ref": "#/components/schemas/TrainingJobSpec"}}},
            }
        },
    )
    async def create_training_job(
        request: Request,
        query: Annotated[queries.CreateJobQuery, Query()],
        idempotency_key: Annotated[
            str | None, Header(description="UUID that makes a retry safe for 24 hours.")
        ] = None,
    ) -> Response:
        """Queues a job."""
        data = spec_data(await read_json_object(request))
        with fields_named({"request_id": "Idempotency-Key"}):
            job = await jobs.create(
                data, request_id=idempotency_key or None, validate_only=query.validate_only
            )
        return answer(_convert.job_object(job))

    @router.get("/training_jobs", response_model=objects.JobList)
    async def list_training_jobs(query: Annotated[queries.JobsQuery, Query()]) -> Response:
        """Lists jobs, newest first."""
        if query.method not in (None, "grpo"):
            return answer(objects.JobList(data=[], has_more=False))
        with fields_named(PAGE_FIELDS):
            page = await jobs.list(limit=query.limit, after=query.after, statuses=query.status)
        return answer(
            objects.JobList(
                data=[_convert.job_object(job) for job in page.items], has_more=bool(page.next_page_token)
            )
        )

    @router.get("/training_jobs/{id}", response_model=objects.TrainingJobObject)
    async def get_training_job(id: str, query: NoQuery) -> Response:
        """Returns a job with its latest metrics."""
        return answer(_convert.job_object(await jobs.get(id)))

    @router.post("/training_jobs/{id}/pause", response_model=objects.TrainingJobObject)
    async def pause_training_job(id: str, query: NoQuery) -> Response:
        """Saves a checkpoint and frees the trainer; answers before the job has paused."""
        return answer(_convert.job_object(await jobs.pause(id)))

    @router.post("/training_jobs/{id}/resume", response_model=objects.TrainingJobObject)
    async def resume_training_job(id: str, query: NoQuery) -> Response:
        """Queues a paused or failed job again, from its newest checkpoint."""
        return answer(_convert.job_object(await jobs.resume(id)))

    @router.post("/training_jobs/{id}/cancel", response_model=objects.TrainingJobObject)
    async def cancel_training_job(id: str, query: NoQuery) -> Response:
        """Asks a job to stop; answers before it has."""
        return answer(_convert.job_object(await jobs.cancel(id)))

    @router.get("/training_jobs/{id}/metrics", response_model=objects.MetricsObject)
    async def get_training_job_metrics(id: str, query: Annotated[queries.MetricsQuery, Query()]) -> Response:
        """Returns metric series."""
        series = await jobs.metrics(
            id,
            keys=query.keys,
            from_step=query.from_step,
            to_step=query.to_step,
            max_points=query.max_points,
        )
        return answer(_convert.metrics_object(series))

    @router.get("/training_jobs/{id}/events", response_model=objects.EventList)
    async def list_events(id: str, query: Annotated[queries.EventsQuery, Query()]) -> Response:
        """Lists what happened to a job but for its steps, newest first."""
        if query.limit < 0:
            raise InvalidArgumentError.of("limit", f"{query.limit} is below 0; leave it out for {_EVENTS}")
        size = min(query.limit or _EVENTS, _LARGEST_PAGE)
        events = await gateway.events.newest(id, kinds=_LOGGED_KINDS, limit=size + 1)
        return answer(
            objects.EventList(
                data=[_convert.event_object(event) for event in events[:size]], has_more=len(events) > size
            )
        )

    @router.get("/training_jobs/{id}/completions", response_model=objects.CompletionList)
    async def list_completions(id: str, query: Annotated[queries.CompletionsQuery, Query()]) -> Response:
        """Lists scored completions, newest step first."""
        with fields_named({"page_size": "limit"}):
            page = await jobs.completions(id, step=query.step, limit=query.limit, page_token=query.page_token)
        return answer(
            objects.CompletionList(
                data=[_convert.completion_object(completion) for completion in page.items],
                has_more=bool(page.next_page_token),
                next_page_token=page.next_page_token or None,
            )
        )

    @router.get("/training_jobs/{id}/watch", response_model=objects.WatchedEvent)
    async def watch_training_job(
        id: str, query: Annotated[queries.WatchQuery, Query()], request: Request
    ) -> Response:
        """Streams a job's events as server-sent events, from the first on, until the job is over."""
        return await watch(gateway, id, query, request)

    @router.get("/watch", response_model=objects.WatchedEvent)
    async def watch_events(query: Annotated[queries.WatchQuery, Query()], request: Request) -> Response:
        """Streams the events of all jobs as server-sent events; without a cursor only new ones."""
        return await watch(gateway, None, query, request)

    return router
