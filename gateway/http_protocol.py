"""HTTP on a connection, where a request's head must come in time, and an answer must be taken."""

from __future__ import annotations

import asyncio
import fcntl
import struct
import termios
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeAlias, cast

import h11
import structlog
from starlette.types import Scope
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

log = structlog.get_logger(__name__)

HEAD_SECONDS: Final = 20.0
"""Longest time from a connection's beginning, or a head's first byte, to the head's end."""
TAKE_SECONDS: Final = 60.0
"""A client that takes nothing of what waits for it for so long is gone."""

SendPiece: TypeAlias = Callable[[bytes], Awaitable[None]]

_EXTENSION: Final = "plaudit.response.piece"


def piece_sender(scope: Scope) -> SendPiece | None:
    """What sends a piece of the body of an answer that has begun, without a length, and goes on; None where
    the request is of an older HTTP. An http.response.body message goes through every layer of the application
    and of h11, which takes longer than all else where a thousand readers get each event.
    """
    return cast("SendPiece | None", scope.get("extensions", {}).get(_EXTENSION, {}).get("send"))


class BoundedProtocol(H11Protocol):
    """uvicorn's protocol, which waits for ever for the rest of a head, and for a client that does not read:
    here the connection is closed.
    """

    _closing: asyncio.TimerHandle | None = None
    _dropping: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begins to wait for the first head."""
        super().connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        """Waits on where a head is not whole yet; each byte of it does not begin the time anew."""
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            self._stop_waiting()
        elif self._closing is None:
            self._wait()

    def handle_events(self) -> None:
        """Offers the request that begins the sender of pieces."""
        before = self.cycle
        super().handle_events()
        if self.cycle is not before and self.scope["http_version"] == "1.1":
            extensions: dict[str, Any] = {_EXTENSION: {"send": _piece_sender(self.cycle)}}
            self.scope["extensions"] = extensions

    def pause_writing(self) -> None:
        """More waits than the client has taken: it must take some of it in time."""
        super().pause_writing()
        self._look_again(self._untaken())

    def resume_writing(self) -> None:
        """The client has taken enough for more to be sent."""
        self._stop_looking()
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Waits no more."""
        self._stop_waiting()
        self._stop_looking()
        super().connection_lost(exc)

    def _wait(self) -> None:
        self._closing = self.loop.call_later(HEAD_SECONDS, self.transport.close)

    def _stop_waiting(self) -> None:
        if self._closing is not None:
            self._closing.cancel()
            self._closing = None

    def _look_again(self, left: int) -> None:
        self._dropping = self.loop.call_later(TAKE_SECONDS, self._drop_unless_less_than, left)

    def _stop_looking(self) -> None:
        if self._dropping is not None:
            self._dropping.cancel()
            self._dropping = None

    def _drop_unless_less_than(self, before: int) -> None:
        left = self._untaken()
        if left < before:
            self._look_again(left)
        else:
            log.info("a client takes nothing of its answer, and is dropped", client=self.client)
            self.transport.abort()

    def _untaken(self) -> int:
        """Bytes that the client's machine has not taken: ours, and the kernel's, which holds megabytes and
        asks for more only when a third of them has gone.
        """
        ours: int = self.transport.get_write_buffer_size()
        connection = self.transport.get_extra_info("socket")
        if connection is None or connection.fileno() < 0:
            return ours
        (kernels,) = struct.unpack("i", fcntl.ioctl(connection.fileno(), termios.TIOCOUTQ, bytes(4)))
        return ours + int(kernels)


def _piece_sender(cycle: RequestResponseCycle) -> SendPiece:
    flow, transport = cycle.flow, cycle.transport

    async def send(piece: bytes) -> None:
        if flow.write_paused and not cycle.disconnected:
            await flow.drain()
        # An empty chunk would be the last. The transport knows of an end before the request is told.
        if piece and not cycle.disconnected and not transport.is_closing():
            # A chunk of RFC 9112, 7.1; h11 writes the last one when the answer ends.
            transport.write(b"%x\r\n%b\r\n" % (len(piece), piece))

    return send
