"""/v1/training_jobs/{id}/logs: a job's log as text, as it grows or as a whole."""

from __future__ import annotations

from collections.abc import AsyncIterator
from http import HTTPStatus
from typing import Annotated, Final

from fastapi import APIRouter, Header, Query, Response
from fastapi.responses import StreamingResponse
from sse_starlette import EventSourceResponse, ServerSentEvent

from gateway.domain import Gateway
from gateway.jobs.log_lines import LoggedLine
from gateway.rest import queries
from gateway.rest.errors import fields_named
from gateway.rest.responses import FAILURES
from plaudit.errors import NotFoundError, UnavailableError

NoQuery = Annotated[queries.NoQuery, Query()]

_LINES_PER_CHUNK: Final = 200
_HEARTBEAT_SECONDS: Final = 15.0
"""Comments keep proxies from closing a quiet stream."""


def logs_router(gateway: Gateway) -> APIRouter:
    """Routes over logs: convert, call the domain, convert back."""
    router = APIRouter(prefix="/v1/training_jobs", tags=["training jobs"], responses=FAILURES)
    log = gateway.job_log

    @router.get(
        "/{id}/logs",
        response_class=EventSourceResponse,
        responses={
            200: {
                "description": "One event a line; the last says how the job ended.",
                "content": {"text/event-stream": {"schema": {"type": "string"}}},
            }
        },
    )
    async def follow_training_job_log(
        id: str,
        query: NoQuery,
        last_event_id: Annotated[str, Header(description="Go on after this event.")] = "",
    ) -> Response:
        """Streams the log as server-sent events, from the first line to `[Job completed]`, `[Job failed]` or
        `[Job cancelled]`. 400 before a trainer has started the job.
        """
        with fields_named({"after_cursor": "Last-Event-ID"}):
            lines = await log.follow(id, after_cursor=last_event_id, from_start=False)
        return EventSourceResponse(_events(lines), ping=_HEARTBEAT_SECONDS)

    @router.get(
        "/{id}/logs/full",
        response_class=StreamingResponse,
        responses={
            status: {"description": text, "content": {"text/plain": {"schema": {"type": "string"}}}}
            for status, text in ((200, "The whole log."), (206, "The log so far, of a job that goes on."))
        },
    )
    async def get_training_job_log(id: str, query: NoQuery) -> Response:
        """Returns the log as text."""
        is_over, lines = await log.so_far(id)
        status = HTTPStatus.OK if is_over else HTTPStatus.PARTIAL_CONTENT
        return StreamingResponse(_chunks(lines), status, media_type="text/plain")

    return router


async def _events(lines: AsyncIterator[LoggedLine]) -> AsyncIterator[ServerSentEvent]:
    try:
        async for line in lines:
            yield ServerSentEvent(line.text, id=line.cursor or None)
    except (UnavailableError, NotFoundError):
        return  # the gateway stops, and the client comes back; or the job was deleted


async def _chunks(lines: AsyncIterator[LoggedLine]) -> AsyncIterator[str]:
    chunk: list[str] = []
    async for line in lines:
        chunk.append(f"{line.text}\n")
        if len(chunk) == _LINES_PER_CHUNK:
            yield "".join(chunk)
            chunk.clear()
    yield "".join(chunk)
