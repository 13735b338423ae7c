"""Requests that are cancelled when their client goes away: those that only read, not answered yet."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from gateway.rest.guard import LOOPBACK_ONLY, Guard


class Request:
    """A request to `Guard`, whose handler tells what comes of it."""

    def __init__(self, method: str, *, answers_first: bool = False, headers: tuple[Any, ...] = ()) -> None:
        self.scope = {
            "type": "http",
            "method": method,
            "path": "/",
            "scheme": "http",
            "headers": [(b"host", b"localhost"), *headers],
        }
        self.began = asyncio.Event()
        self.go_on = asyncio.Event()
        self.sent: list[Any] = []
        self.outcome = ""
        self.received: list[Any] = []
        self._answers_first = answers_first
        self._messages: asyncio.Queue[Any] = asyncio.Queue()
        self._messages.put_nowait({"type": "http.request", "body": b"", "more_body": False})
        self.handling = asyncio.create_task(
            Guard(self._app, LOOPBACK_ONLY)(self.scope, self._receive, self._send)
        )

    def hang_up(self) -> None:
        self._messages.put_nowait({"type": "http.disconnect"})

    async def _receive(self) -> Any:
        return await self._messages.get()

    async def _send(self, message: Any) -> None:
        self.sent.append(message["type"])

    async def _app(self, scope: Any, receive: Callable[[], Any], send: Callable[[Any], Any]) -> None:
        self.received.append((await receive())["type"])
        if self._answers_first:
            await send({"type": "http.response.start", "status": 200, "headers": []})
        self.began.set()
        try:
            if self._answers_first:
                self.received.append((await receive())["type"])
                self.received.append((await receive())["type"])
            await self.go_on.wait()
            self.outcome = "done"
        except asyncio.CancelledError:
            self.outcome = "cancelled"
            raise


@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_a_read_that_nobody_waits_for_is_cancelled(method: str) -> None:
    request = Request(method)
    await request.began.wait()
    request.hang_up()
    # No error for the server to log, nor an answer for nobody.
    await request.handling
    assert (request.outcome, request.sent, request.handling.cancelling()) == ("cancelled", [], 0)


async def test_what_writes_or_has_a_body_is_not() -> None:
    with_body = ((b"content-length", b"2"),)
    for request in (Request("POST"), Request("DELETE"), Request("GET", headers=with_body)):
        await request.began.wait()
        request.hang_up()
        request.go_on.set()
        await request.handling
        assert request.outcome == "done"


async def test_an_answer_that_has_begun_hears_itself_that_its_client_is_gone() -> None:
    request = Request("GET", answers_first=True)
    await request.began.wait()
    request.hang_up()
    request.go_on.set()
    await request.handling
    assert request.outcome == "done"
    assert request.received == ["http.request", "http.disconnect", "http.disconnect"]


async def test_a_gateway_that_stops_cancels_as_ever() -> None:
    request = Request("GET")
    await request.began.wait()
    request.handling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await request.handling
    assert request.outcome == "cancelled"
