"""What stands before every route: who may call from a browser, and that nothing but an envelope goes out."""

from __future__ import annotations

import ipaddress
import secrets
from urllib.parse import urlsplit

import structlog
from sse_starlette.sse import SendTimeoutError
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
    there (DNS rebinding) read the answers: so the Host must be a loopback name, and an Origin must be ours.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        refusal = _refusal(scope)
        if refusal is not None:
            await response_of(refusal)(scope, receive, send)
            return
        started = False

        async def watched_send(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await self._app(scope, receive, watched_send)
        except (ClientDisconnect, SendTimeoutError):
            log.info("a client went away", path=scope["path"])
        except Exception:
            incident = secrets.token_hex(6)
            log.exception("unexpected error in a request", path=scope["path"], incident=incident)
            if started:
                raise
            error = InternalError(f"unexpected error; the service's log has it under incident {incident}")
            await response_of(error)(scope, receive, send)


def _refusal(scope: Scope) -> PlauditError | None:
    headers = Headers(scope=scope)
    hosts = headers.getlist("host")
    if len(hosts) != 1 or not _is_loopback(hosts[0]):
        return PermissionDeniedError(
            f"the Host header is {shown(', '.join(hosts))}, and this gateway answers on loopback only; call "
            "it as 127.0.0.1 or localhost"
        )
    origin = headers.get("origin")
    if origin is not None and origin != f"{scope['scheme']}://{hosts[0]}":
        return PermissionDeniedError(
            f"the request comes from a page of {shown(origin)}; only the gateway's own pages may call it"
        )
    return None


def _is_loopback(host_and_port: str) -> bool:
    try:
        host = urlsplit(f"//{host_and_port}").hostname or ""
    except ValueError:
        return False
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
