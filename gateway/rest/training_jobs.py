"""/v1/training_jobs, and the watch over all of them."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Header, Query, Request, Response

from gateway.domain import Gateway
from gateway.jobs.requests import FUNCTION_REWARD
from gateway.rest import _convert, objects, queries
from gateway.rest.bodies import MAX_JOB_BYTES, read_json_object
from gateway.rest.documented import json_body
from gateway.rest.errors import PAGE_FIELDS, fields_named
from gateway.rest.links import DownloadLinks
from gateway.rest.metrics_csv import metrics_csv, wants_csv
from gateway.rest.responses import FAILURES, answer
from gateway.rest.reward_functions import RewardSource
from gateway.rest.watching import watch
from plaudit.errors import NotFoundError

NoQuery = Annotated[queries.NoQuery, Query()]


def training_jobs_router(gateway: Gateway) -> APIRouter:
    """Routes over jobs: convert, call the domain, convert back."""
    router = APIRouter(prefix="/v1", tags=["training jobs"], responses=FAILURES)
    jobs = gateway.jobs
    links = DownloadLinks(gateway.models)

    @router.post(
        "/training_jobs",
        response_model=objects.TrainingJobObject,
        openapi_extra=json_body("NewTrainingJob"),
    )
    async def create_training_job(
        request: Request,
        query: Annotated[queries.CreateJobQuery, Query()],
        idempotency_key: Annotated[
            str | None, Header(description="UUID that makes a retry safe for 24 hours.")
        ] = None,
    ) -> Response:
        """Queues a job."""
        data = await read_json_object(request, max_bytes=MAX_JOB_BYTES)
        with fields_named({"request_id": "Idempotency-Key"}):
            job = await jobs.create(
                data, request_id=idempotency_key or None, validate_only=query.validate_only
            )
        return answer(_convert.job_object(job))

    @router.get("/training_jobs", response_model=objects.JobList)
    async def list_training_jobs(request: Request, query: Annotated[queries.JobsQuery, Query()]) -> Response:
        """Lists jobs, newest first. A page may be shorter than its limit and have more behind it."""
        method = "sft" if query.method == "sft_text" else query.method
        with fields_named(PAGE_FIELDS):
            page = await jobs.list(limit=query.limit, after=query.after, statuses=query.status, method=method)
        return answer(
            objects.JobList(
                data=[_convert.job_object(job, await links.of_job(request, job)) for job in page.items],
                has_more=bool(page.next_page_token),
            )
        )

    @router.get("/training_jobs/{id}", response_model=objects.TrainingJobObject)
    async def get_training_job(id: str, request: Request, query: NoQuery) -> Response:
        """Returns a job with its latest metrics."""
        job = await jobs.get(id)
        return answer(_convert.job_object(job, await links.of_job(request, job)))

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

    @router.post(
        "/training_jobs/{id}/clone",
        response_model=objects.TrainingJobObject,
        openapi_extra=json_body("TrainingJobOverrides", required=False),
    )
    async def clone_training_job(
        id: str,
        request: Request,
        query: Annotated[queries.CreateJobQuery, Query()],
        idempotency_key: Annotated[
            str | None, Header(description="UUID that makes a retry safe for 24 hours.")
        ] = None,
    ) -> Response:
        """Queues a job as this one, but for the fields in the body: hyperparameters one by one, null for the
        default; every other field as a whole.
        """
        overrides = await read_json_object(request, max_bytes=MAX_JOB_BYTES, optional=True)
        with fields_named({"request_id": "Idempotency-Key"}):
            job = await jobs.clone(
                id, overrides, request_id=idempotency_key or None, validate_only=query.validate_only
            )
        return answer(_convert.job_object(job))

    @router.delete("/training_jobs/{id}", response_model=objects.Deleted)
    async def delete_training_job(id: str, query: NoQuery) -> Response:
        """Deletes a job that is over, with its checkpoints, completions and rescores."""
        await jobs.delete(id)
        return answer(objects.Deleted(id=id, object="training_job"))

    @router.post("/training_jobs/{id}/heartbeat", response_model=objects.TrainingJobObject)
    async def heartbeat_training_job(id: str, query: NoQuery) -> Response:
        """Says that the job's client is alive. From the first time on, a job with requires_heartbeat is
        cancelled where the client is not heard of for some minutes.
        """
        return answer(_convert.job_object(await jobs.heartbeat(id)))

    @router.get("/training_jobs/{id}/rewards/{index}/source", response_model=RewardSource)
    async def get_training_job_reward_source(id: str, index: int, query: NoQuery) -> Response:
        """Returns the text of a reward that is a Python function; `index` counts from 0."""
        job = await jobs.get(id)
        rewards = job.spec.rewards
        if not 0 <= index < len(rewards):
            raise NotFoundError(
                f"job {id} has {len(rewards)} rewards, counted from 0: there is no {index}", field="index"
            )
        source = rewards[index].config.get("source")
        if rewards[index].reward != FUNCTION_REWARD or not isinstance(source, str):
            raise NotFoundError(
                f"reward {index} of job {id} is {rewards[index].reward} of {rewards[index].server}, which "
                "has no source here",
                field="index",
            )
        return answer(RewardSource(source=source))

    @router.get(
        "/training_jobs/{id}/metrics",
        response_model=objects.MetricsObject,
        responses={200: {"content": {"text/csv": {"schema": {"type": "string"}}}}},
    )
    async def get_training_job_metrics(
        id: str,
        query: Annotated[queries.MetricsQuery, Query()],
        accept: Annotated[str, Header(description="text/csv, or application/json.")] = "",
    ) -> Response:
        """Returns metric series."""
        series = await jobs.metrics(
            id,
            keys=query.keys,
            from_step=query.from_step,
            to_step=query.to_step,
            max_points=query.max_points,
        )
        if wants_csv(accept):
            return Response(metrics_csv(series, query.keys), media_type="text/csv")
        return answer(_convert.metrics_object(series))

    @router.get("/training_jobs/{id}/events", response_model=objects.EventList)
    async def list_events(id: str, query: Annotated[queries.EventsQuery, Query()]) -> Response:
        """Lists what happened to a job but for its steps, newest first."""
        with fields_named(PAGE_FIELDS):
            page = await gateway.events.page(id, limit=query.limit, page_token=query.after)
        return answer(
            objects.EventList(
                data=[_convert.event_object(event) for event in page.items],
                has_more=bool(page.next_page_token),
            )
        )

    @router.get("/training_jobs/{id}/completions", response_model=objects.CompletionList)
    async def list_completions(id: str, query: Annotated[queries.CompletionsQuery, Query()]) -> Response:
        """Lists scored completions, newest step first."""
        with fields_named({"page_size": "limit"}):
            page = await jobs.completions(
                id,
                step=query.step,
                limit=query.limit,
                page_token=query.page_token,
                evaluations=query.evaluations,
            )
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
