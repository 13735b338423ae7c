"""Who calls by REST, whether they may, and what is written down of it."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any, Final

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.access import Access, Caller
from gateway.access.callers import enter
from gateway.access.rules import rule_of_request
from gateway.access.service import peer_name
from gateway.rest.bodies import Body
from gateway.rest.errors import response_of
from plaudit.errors import PlauditError, UnauthenticatedError

_OPEN_PATHS: Final = ("/health", "/openapi.json")
"""What a probe asks, and how to call the rest."""


class Auth:
    """Lets requests through that `access` lets in.

    Paths that begin with one of `signed` carry their own permission, which their route checks: a URL that
    was signed for one file and a short time.
    """

    def __init__(self, app: ASGIApp, access: Access, signed: Sequence[str] = ()) -> None:
        self._app = app
        self._access = access
        self._signed = tuple(signed)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        peer = peer_name(scope["client"][0] if scope["client"] else "")
        try:
            if self._needs_no_token(scope):
                with self._access.within_anonymous(peer):
                    await self._app(scope, receive, send)
                return
            caller = await self._access.identify(_authorization(scope))
        except PlauditError as error:
            await self._refuse(error, peer, scope, receive, send)
            return
        await self._serve(caller, peer, scope, receive, send)

    def _needs_no_token(self, scope: Scope) -> bool:
        path: str = scope["path"]
        if scope["method"] not in ("GET", "HEAD"):
            return False
        return path in _OPEN_PATHS or path.startswith(self._signed)

    async def _serve(self, caller: Caller, peer: str, scope: Scope, receive: Receive, send: Send) -> None:
        rule = rule_of_request(scope["method"], scope["path"])
        call = f"{scope['method']} {scope['path']}"
        answer = _Answer(self._access, caller, peer, call, send)
        try:
            self._access.admit(caller, rule)
            with self._access.within(caller):
                enter(caller)
                await self._app(scope, receive, answer.send_and_note if rule.changes else answer.send)
        except PlauditError as error:
            if answer.started:
                # Its token was revoked or has expired: the stream ends here, and the next request tells why.
                with contextlib.suppress(RuntimeError):
                    await send({"type": "http.response.body", "body": b"", "more_body": False})
                return
            if not isinstance(error, UnauthenticatedError):
                await self._access.audit.write(caller, peer=peer, call=call, subject="", outcome=error.reason)
            await _answer_refusal(error, scope, receive, send)
        except (asyncio.CancelledError, Exception) as error:
            if rule.changes and not answer.noted:
                outcome = "CANCELLED" if isinstance(error, asyncio.CancelledError) else "INTERNAL"
                await self._access.audit.write(caller, peer=peer, call=call, subject="", outcome=outcome)
            raise

    async def _refuse(
        self, error: PlauditError, peer: str, scope: Scope, receive: Receive, send: Send
    ) -> None:
        if isinstance(error, UnauthenticatedError):
            try:
                self._access.refuse(peer)
            except PlauditError as too_many:
                error = too_many
        await _answer_refusal(error, scope, receive, send)


class _Answer:
    """The answer to a call, on its way out."""

    def __init__(self, access: Access, caller: Caller, peer: str, call: str, send: Send) -> None:
        self._access = access
        self._caller = caller
        self._peer = peer
        self._call = call
        self._send = send
        self._held: Message | None = None
        self.started = False
        self.noted = False

    async def send(self, message: Message) -> None:
        """Sends."""
        self.started = True
        await self._send(message)

    async def send_and_note(self, message: Message) -> None:
        """Sends what a call answers that may have changed something, once that is written down."""
        if message["type"] == "http.response.start":
            self._held = message
            return
        if self._held is not None:
            status = self._held["status"]
            body = _json_object(message.get("body", b""))
            error = body.get("error")
            failed = status >= HTTPStatus.BAD_REQUEST
            outcome = str(error.get("code")) if failed and isinstance(error, dict) else str(status)
            await self._access.audit.write(
                self._caller,
                peer=self._peer,
                call=self._call,
                subject="" if failed else str(body.get("id", "")),
                outcome=outcome if failed else "ok",
            )
            self.noted = True
            held, self._held = self._held, None
            await self.send(held)
        await self.send(message)


async def _answer_refusal(error: PlauditError, scope: Scope, receive: Receive, send: Send) -> None:
    response = response_of(error)
    headers = Headers(scope=scope)
    if headers.get("content-length", "0") != "0" or "transfer-encoding" in headers:
        await Body(Request(scope, receive)).discard()
    await response(scope, receive, send)


def _authorization(scope: Scope) -> str | None:
    given = Headers(scope=scope).getlist("authorization")
    if len(given) > 1:
        raise UnauthenticatedError("the header authorization is there more than once; send it once")
    return given[0] if given else None


def _json_object(data: bytes) -> dict[str, Any]:
    try:
        value = json.loads(data)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
