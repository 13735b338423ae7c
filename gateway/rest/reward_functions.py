"""/v1/reward_functions."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Header, Query, Request, Response

from gateway.domain import Gateway
from gateway.jobs.requests import MAX_SOURCE_BYTES
from gateway.rest import queries
from gateway.rest.bodies import Body
from gateway.rest.documented import file_body
from gateway.rest.errors import PAGE_FIELDS, fields_named
from gateway.rest.forms import Form, read_form
from gateway.rest.objects import Deleted, Listed, RestObject, Time
from gateway.rest.responses import FAILURES, answer
from gateway.reward_functions import FORMATS
from gateway.store.reward_functions import RewardFunction
from plaudit.errors import DeadlineExceededError, PlauditError

NoQuery = Annotated[queries.NoQuery, Query()]

_MOST_BYTES = 2 * MAX_SOURCE_BYTES
"""What is received of a file, so that one that is a little too large is told how large it is."""


class RewardFunctionObject(RestObject):
    """A Python file with a function that scores."""

    id: str
    object: Literal["reward_function"] = "reward_function"
    name: str
    format: Literal["trl", "miles"]
    filename: str
    size_bytes: int
    sha256: str
    created_at: Time


class RewardFunctionList(Listed[RewardFunctionObject]):
    """A page of reward functions, newest first; `after=<last id>` asks for the next."""


class RewardSource(RestObject):
    """The text of a Python file with a function that scores."""

    source: str


def reward_functions_router(gateway: Gateway) -> APIRouter:
    """Routes over reward functions: convert, call the domain, convert back."""
    router = APIRouter(prefix="/v1/reward_functions", tags=["reward functions"], responses=FAILURES)
    functions = gateway.reward_functions

    @router.post(
        "",
        response_model=RewardFunctionObject,
        openapi_extra=file_body({"type": "string", "enum": list(FORMATS), "default": FORMATS[0]}),
    )
    async def upload_reward_function(
        request: Request,
        query: NoQuery,
        idempotency_key: Annotated[
            str, Header(description="UUID that makes a retry safe for 24 hours.")
        ] = "",
    ) -> Response:
        """Stores a Python file with a function that scores; the same content under the same name and format
        returns the same function.
        """
        body = Body(request)
        try:
            form = await read_form(
                body, request.headers.get("content-type"), ("name", "format"), max_bytes=_MOST_BYTES
            )
            function = await _create(form, idempotency_key)
        except DeadlineExceededError:
            raise
        except PlauditError:
            await body.discard()
            raise
        return answer(_object(function))

    async def _create(form: Form, request_id: str) -> RewardFunction:
        with fields_named({"request_id": "Idempotency-Key"}):
            return await functions.create(
                form.fields["name"],
                form.content,
                file_format=form.fields.get("format", ""),
                filename=form.filename,
                request_id=request_id,
            )

    @router.get("", response_model=RewardFunctionList)
    async def list_reward_functions(query: Annotated[queries.ListQuery, Query()]) -> Response:
        """Lists reward functions, newest first."""
        with fields_named(PAGE_FIELDS):
            page = await functions.list(limit=query.limit, after=query.after)
        data = [_object(function) for function in page.items]
        return answer(RewardFunctionList(data=data, has_more=bool(page.next_page_token)))

    @router.get("/{id}", response_model=RewardFunctionObject)
    async def get_reward_function(id: str, query: NoQuery) -> Response:
        """Returns a reward function, by its id, or the newest of a name."""
        return answer(_object(await functions.get(id)))

    @router.get("/{id}/source", response_model=RewardSource)
    async def get_reward_function_source(id: str, query: NoQuery) -> Response:
        """Returns the text of a reward function."""
        return answer(RewardSource(source=(await functions.get(id)).source))

    @router.delete("/{id}", response_model=Deleted)
    async def delete_reward_function(id: str, query: NoQuery) -> Response:
        """Deletes a reward function; jobs that named it have its source."""
        function = await functions.delete(id)
        return answer(Deleted(id=function.id, object="reward_function"))

    return router


def _object(function: RewardFunction) -> RewardFunctionObject:
    return RewardFunctionObject(
        id=function.id,
        name=function.name,
        format=function.format,
        filename=function.filename,
        size_bytes=function.size_bytes,
        sha256=function.sha256,
        created_at=function.created_at,
    )
