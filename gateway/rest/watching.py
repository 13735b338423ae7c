"""Server-sent events: what gRPC's watches deliver, with the same cursors as ids.

A browser comes back by itself, with the id of the last event that it saw. It is told 204 where nothing more
will come, and where its cursor is of another store one event `resync` that empties that id: it then starts
from the beginning.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Final

from fastapi import Request, Response
from fastapi.responses import StreamingResponse
from sse_starlette import ServerSentEvent
from starlette.types import Receive, Scope, Send

from gateway.domain import Gateway
from gateway.events import Event
from gateway.http_protocol import SendPiece, piece_sender
from gateway.rest._convert import watched_event
from gateway.rest.errors import fields_named
from gateway.rest.queries import WatchQuery
from plaudit.errors import OutOfRangeError, UnavailableError

_RECONNECT_MS: Final = 1_000
_FORM: Final = "server-sent event"


async def watch(gateway: Gateway, job_id: str | None, query: WatchQuery, request: Request) -> Response:
    """The events of a job, or of all jobs, as a stream that ends with the job."""
    last_seen = request.headers.get("last-event-id", "")
    try:
        with fields_named({"after_cursor": "Last-Event-ID"} if last_seen else {}):
            events = await gateway.events.watch_together(job_id, last_seen or query.after_cursor, query.kinds)
    except OutOfRangeError as error:
        if not last_seen:
            raise
        return _Stream(_resync(error))
    if job_id is not None and last_seen and (await gateway.jobs.get(job_id)).status.is_terminal:
        first = await anext(events, None)
        if first is None:
            return Response(status_code=204)
        events = _put_back(first, events)
    return _Stream(_sent(events))


class _Stream(StreamingResponse):
    """Server-sent events, as they are encoded. A quiet stream needs no comments: it carries bookmarks.

    What sse_starlette's own response does around each send (a lock, a timeout) takes longer than all else
    where a thousand readers get each event.
    """

    media_type = "text/event-stream"

    def __init__(self, events: AsyncGenerator[bytes, None]) -> None:
        super().__init__(events, headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        self._events = events
        self._send_piece: SendPiece | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._send_piece = piece_sender(scope)
        await super().__call__(scope, receive, send)

    async def stream_response(self, send: Send) -> None:
        """Ends the events at once where the reader has gone while they were sent."""

        async def send_message(piece: bytes) -> None:
            await send({"type": "http.response.body", "body": piece, "more_body": True})

        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        send_piece = self._send_piece or send_message
        async with aclosing(self._events):
            async for piece in self._events:
                await send_piece(piece)
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _sent(batches: AsyncGenerator[Sequence[Event], None]) -> AsyncGenerator[bytes, None]:
    yield ServerSentEvent(retry=_RECONNECT_MS).encode()
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


async def _resync(error: OutOfRangeError) -> AsyncGenerator[bytes, None]:
    data = json.dumps({"code": error.reason, "message": error.message})
    yield ServerSentEvent(data, event="resync", id="", retry=_RECONNECT_MS).encode()
