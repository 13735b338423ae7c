"""Server-sent events: what gRPC's watches deliver, with the same cursors as ids.

A browser comes back by itself, with the id of the last event that it saw. It is told 204 where nothing more
will come, and where its cursor is of another store one event `resync` that empties that id: it then starts
from the beginning.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from typing import Final

from fastapi import Request, Response
from sse_starlette import EventSourceResponse, ServerSentEvent

from gateway.domain import Gateway
from gateway.events import Event
from gateway.rest._convert import watched_event
from gateway.rest.queries import WatchQuery
from plaudit.errors import OutOfRangeError, UnavailableError

HEARTBEAT_SECONDS: Final = 15.0
"""Comments keep proxies from closing a quiet stream."""
SEND_SECONDS: Final = 60.0
"""A reader that takes nothing for so long is gone."""
_RECONNECT_MS: Final = 1_000
_FORM: Final = "server-sent event"


async def watch(gateway: Gateway, job_id: str | None, query: WatchQuery, request: Request) -> Response:
    """The events of a job, or of all jobs, as a stream that ends with the job."""
    last_seen = request.headers.get("last-event-id", "")
    try:
        events = await gateway.events.watch_together(job_id, last_seen or query.after_cursor, query.kinds)
    except OutOfRangeError as error:
        if not last_seen:
            raise
        return _stream(_resync(error))
    if job_id is not None and last_seen and (await gateway.jobs.get(job_id)).status.is_terminal:
        first = await anext(events, None)
        if first is None:
            return Response(status_code=204)
        events = _put_back(first, events)
    return _stream(_sent(events))


def _stream(events: AsyncIterator[ServerSentEvent | bytes]) -> EventSourceResponse:
    return EventSourceResponse(events, ping=HEARTBEAT_SECONDS, send_timeout=SEND_SECONDS)


async def _sent(batches: AsyncGenerator[Sequence[Event], None]) -> AsyncIterator[ServerSentEvent | bytes]:
    yield ServerSentEvent(retry=_RECONNECT_MS)
    try:
        async with aclosing(batches):
            async for events in batches:
                yield b"".join(map(_encoded, events))
    except UnavailableError:
        return  # the gateway stops: the client comes back, with its cursor


def _encoded(event: Event) -> bytes:
    encoded: bytes | None = event.forms.get(_FORM)
    if encoded is None:
        data = watched_event(event).model_dump_json(exclude_none=True)
        encoded = ServerSentEvent(data, event=event.kind, id=event.cursor).encode()
        event.forms[_FORM] = encoded
    return encoded


async def _put_back(
    first: Sequence[Event], rest: AsyncGenerator[Sequence[Event], None]
) -> AsyncGenerator[Sequence[Event], None]:
    async with aclosing(rest):
        yield first
        async for events in rest:
            yield events


async def _resync(error: OutOfRangeError) -> AsyncIterator[ServerSentEvent | bytes]:
    data = json.dumps({"code": error.reason, "message": error.message})
    yield ServerSentEvent(data, event="resync", id="", retry=_RECONNECT_MS)
