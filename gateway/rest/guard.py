"""What stands before every route: who may call from a browser, and that nothing but an envelope goes out."""

from __future__ import annotations

import asyncio
import ipaddress
import secrets
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

import structlog
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.rest.errors import response_of
from plaudit.errors import InternalError, PermissionDeniedError, PlauditError
from plaudit.types.validation import shown

log = structlog.get_logger(__name__)


class Guard:
    """Refuses a foreign Host or Origin, and answers an unexpected error with an id instead of a traceback.

    A page of any site can make its visitor's browser call 127.0.0.1, and by a name of its own that resolves
    there (DNS rebinding) read the answers: so the Host must be one of `hosts`, and an Origin must be ours.
    """

    def __init__(self, app: ASGIApp, hosts: Hosts) -> None:
        self._app = app
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        refusal = self._refusal(scope)
        if refusal is not None:
            await response_of(refusal)(scope, receive, send)
            return
        started = False

        async def watched_send(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            if _only_reads(scope):
                await _unless_abandoned(self._app, scope, receive, watched_send)
            else:
                await self._app(scope, receive, watched_send)
        except ClientDisconnect:
            log.info("a client went away", path=scope["path"])
        except Exception:
            incident = secrets.token_hex(6)
            log.exception("unexpected error in a request", path=scope["path"], incident=incident)
            if started:
                raise
            error = InternalError(f"unexpected error; the service's log has it under incident {incident}")
            await response_of(error)(scope, receive, send)

    def _refusal(self, scope: Scope) -> PlauditError | None:
        headers = Headers(scope=scope)
        hosts = headers.getlist("host")
        if len(hosts) != 1 or not self._hosts.has(hosts[0]):
            return PermissionDeniedError(
                f"the Host header is {shown(', '.join(hosts))}, and this gateway answers {self._hosts.words}"
            )
        origin = headers.get("origin")
        if origin is not None and origin not in self._hosts.origins(scope["scheme"], hosts[0]):
            return PermissionDeniedError(
                f"the request comes from a page of {shown(origin)}; only the gateway's own pages may call it"
            )
        return None


def _only_reads(scope: Scope) -> bool:
    """Whether a request changes nothing, and is whole with its head."""
    headers = Headers(scope=scope)
    return (
        scope["method"] in ("GET", "HEAD")
        and headers.get("content-length", "0") == "0"
        and "transfer-encoding" not in headers
    )


async def _unless_abandoned(app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
    """Answers the request, or cancels that where the client goes away before the answer has begun, and
    raises ClientDisconnect: what it asked for waits and is read for nobody.
    """
    handling = asyncio.current_task()
    assert handling is not None
    head = await receive()
    taken = started = abandoned = False
    gone = asyncio.Event()

    async def listen() -> None:
        nonlocal abandoned
        while (await receive())["type"] != "http.disconnect":
            pass
        gone.set()
        if not started:
            abandoned = True
            handling.cancel()

    async def receive_in_turn() -> Message:
        nonlocal taken
        if not taken:
            taken = True
            return head
        await gone.wait()
        return {"type": "http.disconnect"}

    async def started_send(message: Message) -> None:
        nonlocal started
        started = True
        await send(message)

    listening = asyncio.create_task(listen())
    try:
        await app(scope, receive_in_turn, started_send)
    except asyncio.CancelledError:
        # Where the gateway cancels it as well, it is cancelled.
        if not abandoned or handling.uncancel() > 0:
            raise
        raise ClientDisconnect from None
    finally:
        listening.cancel()


@dataclass(frozen=True, slots=True)
class Hosts:
    """The names by which the gateway may be called, besides loopback's.

    `by_address` also lets in every IP address: no page can make a browser take its own name for one.
    `behind_proxy` says that a proxy speaks TLS, so that pages are https where requests are not.
    """

    names: frozenset[str] = frozenset()
    by_address: bool = False
    behind_proxy: bool = False

    def has(self, host_and_port: str) -> bool:
        """Whether a Host header is one of them; its port may be a proxy's."""
        try:
            host = urlsplit(f"//{host_and_port}").hostname or ""
        except ValueError:
            return False
        if host == "localhost" or host in self.names:
            return True
        try:
            address = ipaddress.ip_address(host)
        except ValueError:
            return False
        return self.by_address or address.is_loopback

    def origins(self, scheme: str, host_and_port: str) -> set[str]:
        """The origins of the gateway's own pages, for a request of this scheme and Host."""
        schemes = {scheme, "https"} if self.behind_proxy else {scheme}
        return {f"{each}://{host_and_port}" for each in schemes}

    @property
    def words(self) -> str:
        """What it answers to, and the way out."""
        if not self.names and not self.by_address:
            return "on loopback only; call it as 127.0.0.1 or localhost, or name it in allowed_hosts"
        known = ", ".join(sorted(self.names)) or "none"
        return f"by its address or its allowed_hosts ({known}); add the name there"


LOOPBACK_ONLY: Final = Hosts()
"""A gateway that nothing but this machine reaches."""
