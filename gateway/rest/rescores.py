"""/v1/training_jobs/{id}/rescores and /v1/rescores."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Header, Query, Request, Response

from gateway.domain import Gateway
from gateway.pages import Page
from gateway.rescoring.rescore import Rescore, RescoreResult
from gateway.rest import _convert, objects, queries
from gateway.rest.bodies import read_json_object
from gateway.rest.documented import json_body
from gateway.rest.errors import PAGE_FIELDS, fields_named
from gateway.rest.objects import (
    CompletionObject,
    ErrorOfJob,
    Listed,
    ListedByToken,
    OutcomeObject,
    RestObject,
    Time,
)
from gateway.rest.responses import FAILURES, answer

NoQuery = Annotated[queries.NoQuery, Query()]


class RescoredRewardObject(RestObject):
    """What one reward made of the completions; `failure` says why the newest failure failed."""

    name: str
    scored_count: int
    not_applicable_count: int
    failed_count: int
    mean: float | None
    failure: str


class RescoreSummaryObject(RestObject):
    """Old and new weighted sums in comparison, over the completions that have both."""

    compared_count: int
    old_mean: float | None
    new_mean: float | None
    correlation: float | None
    rank_agreement: float | None
    ordered_pair_count: int
    failed_count: int
    not_applicable_count: int
    rewards: list[RescoredRewardObject]


class RescoreObject(RestObject):
    """A rescore; counts are of completions."""

    id: str
    object: Literal["rescore"] = "rescore"
    job_id: str
    status: str
    status_detail: str
    error: ErrorOfJob | None
    rewards: list[dict[str, Any]]
    from_step: int
    to_step: int
    done_count: int
    total_count: int
    summary: RescoreSummaryObject
    created_at: Time
    started_at: Time | None
    finished_at: Time | None


class RescoreList(Listed[RescoreObject]):
    """A page of rescores, newest first; `after=<last id>` asks for the next."""


class RescoreResultObject(RestObject):
    """A completion with the scores that it had, and those that it has now."""

    object: Literal["rescore_result"] = "rescore_result"
    completion: CompletionObject
    new_reward: float | None
    new_outcomes: list[OutcomeObject]


class RescoreResultList(ListedByToken[RescoreResultObject]):
    """A page of results, oldest step first; `page_token=<next_page_token>` asks for the next."""


def rescores_router(gateway: Gateway) -> APIRouter:
    """Routes over rescores: convert, call the domain, convert back."""
    router = APIRouter(prefix="/v1", tags=["rescores"], responses=FAILURES)
    rescores = gateway.rescores

    @router.post(
        "/training_jobs/{id}/rescores",
        response_model=RescoreObject,
        openapi_extra=json_body("RescoreSpec"),
    )
    async def create_rescore(
        id: str,
        request: Request,
        query: NoQuery,
        idempotency_key: Annotated[str | None, Header(description="UUID that makes a retry safe.")] = None,
    ) -> Response:
        """Queues a rescore of the job's stored completions. Without rewards: with those of the job."""
        with fields_named({"request_id": "Idempotency-Key", "job_id": "id"}):
            rescore = await rescores.create(
                id, await read_json_object(request), request_id=idempotency_key or None
            )
        return answer(_rescore(rescore))

    @router.get("/training_jobs/{id}/rescores", response_model=RescoreList)
    async def list_rescores_of_job(id: str, query: Annotated[queries.ListQuery, Query()]) -> Response:
        """Lists the rescores of a job, newest first."""
        with fields_named(PAGE_FIELDS):
            return _list(await rescores.list(job_id=id, limit=query.limit, after=query.after))

    @router.get("/rescores", response_model=RescoreList)
    async def list_rescores(query: Annotated[queries.ListQuery, Query()]) -> Response:
        """Lists the rescores of all jobs, newest first."""
        with fields_named(PAGE_FIELDS):
            return _list(await rescores.list(limit=query.limit, after=query.after))

    @router.get("/rescores/{id}", response_model=RescoreObject)
    async def get_rescore(id: str, query: NoQuery) -> Response:
        """Returns a rescore as it stands."""
        return answer(_rescore(await rescores.get(id)))

    @router.post("/rescores/{id}/cancel", response_model=RescoreObject)
    async def cancel_rescore(id: str, query: NoQuery) -> Response:
        """Stops a rescore; what it has scored stays."""
        return answer(_rescore(await rescores.cancel(id)))

    @router.get("/rescores/{id}/results", response_model=RescoreResultList)
    async def list_rescore_results(id: str, query: Annotated[queries.PageQuery, Query()]) -> Response:
        """Lists what was scored so far, old and new side by side, oldest step first."""
        with fields_named({"page_size": "limit"}):
            page = await rescores.results(id, limit=query.limit, page_token=query.page_token)
        return answer(
            RescoreResultList(
                data=[_result(result) for result in page.items],
                has_more=bool(page.next_page_token),
                next_page_token=page.next_page_token or None,
            )
        )

    return router


def _list(page: Page[Rescore]) -> Response:
    data = [_rescore(rescore) for rescore in page.items]
    return answer(RescoreList(data=data, has_more=bool(page.next_page_token)))


def _rescore(rescore: Rescore) -> RescoreObject:
    return RescoreObject(
        id=rescore.id,
        job_id=rescore.job_id,
        status=rescore.status.value,
        status_detail=rescore.status_detail,
        error=objects.ErrorOfJob(code=rescore.error.code, message=rescore.error.message)
        if rescore.error
        else None,
        rewards=[binding.model_dump(mode="json") for binding in rescore.spec.rewards],
        from_step=rescore.spec.from_step,
        to_step=rescore.spec.to_step,
        done_count=rescore.done_count,
        total_count=rescore.total_count,
        summary=RescoreSummaryObject.model_validate(asdict(rescore.summary)),
        created_at=rescore.created_at,
        started_at=rescore.started_at,
        finished_at=rescore.finished_at,
    )


def _result(result: RescoreResult) -> RescoreResultObject:
    return RescoreResultObject(
        completion=_convert.completion_object(result.completion),
        new_reward=result.new_reward,
        new_outcomes=[_convert.outcome_object(outcome) for outcome in result.new_outcomes],
    )
