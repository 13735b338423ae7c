"""The socket of the REST port, and what is waited for on its connections."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from gateway import http_protocol
from gateway.http_protocol import BoundedProtocol
from gateway.server import _HttpServer, _listening_socket

HEAD = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n"


def test_what_is_written_is_sent_at_once() -> None:
    with _listening_socket("127.0.0.1:0") as listening, socket.create_connection(listening.getsockname()):
        accepted, _ = listening.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1


async def test_a_head_that_does_not_end_closes_its_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_protocol, "HEAD_SECONDS", 0.3)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        while (await receive())["more_body"]:
            pass
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"ok"})

    with _listening_socket("127.0.0.1:0") as listening:
        port = listening.getsockname()[1]
        server = _HttpServer(uvicorn.Config(app, http=BoundedProtocol, lifespan="off", log_config=None))
        serving = asyncio.create_task(server.serve(sockets=[listening]))
        try:
            silent = await asyncio.open_connection("127.0.0.1", port)
            half = await asyncio.open_connection("127.0.0.1", port)
            half[1].write(HEAD)
            kept = await asyncio.open_connection("127.0.0.1", port)
            kept[1].write(HEAD + b"\r\nA")
            # Both are closed by the server, while a body may take longer than a head.
            for reader, writer in (silent, half):
                assert await asyncio.wait_for(reader.read(), 30) == b""
                writer.close()
            kept[1].write(b"B")
            assert (await asyncio.wait_for(kept[0].readuntil(b"ok"), 30)).startswith(b"HTTP/1.1 200")
            # Nor may the head of a later request take for ever.
            kept[1].write(HEAD)
            assert await asyncio.wait_for(kept[0].read(), 30) == b""
            kept[1].close()
        finally:
            server.should_exit = True
            await serving


class HalfReadTransport(asyncio.Transport):
    """Of what waits in it, as much is left at each look as `left` says."""

    def __init__(self, *left: int) -> None:
        super().__init__()
        self.left = list(left)
        self.aborted = asyncio.Event()

    def get_write_buffer_size(self) -> int:
        return self.left.pop(0)

    def abort(self) -> None:
        self.aborted.set()

    def close(self) -> None:
        pass


async def test_who_takes_a_little_is_waited_for_and_who_takes_nothing_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http_protocol, "TAKE_SECONDS", 0.01)

    async def app(scope: Any, receive: Any, send: Any) -> None: ...

    protocol = BoundedProtocol(uvicorn.Config(app, log_config=None), ServerState(), {})
    transport = HalfReadTransport(100_000, 90_000, 80_000, 80_000)
    protocol.connection_made(transport)
    protocol.pause_writing()
    await asyncio.wait_for(transport.aborted.wait(), 30)
    assert transport.left == []
    protocol.connection_lost(None)
    # Who has taken all of it meanwhile is looked at no more.
    transport = HalfReadTransport(100_000, 100_000)
    protocol = BoundedProtocol(uvicorn.Config(app, log_config=None), ServerState(), {})
    protocol.connection_made(transport)
    protocol.pause_writing()
    protocol.resume_writing()
    await asyncio.sleep(0.05)
    assert transport.left == [100_000]
    protocol.connection_lost(None)


async def test_what_the_kernel_holds_for_a_client_is_not_taken_yet() -> None:
    """A slow reader takes of that for minutes, while what waits in this process stays as it is."""

    async def app(scope: Any, receive: Any, send: Any) -> None: ...

    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        protocol = BoundedProtocol(uvicorn.Config(app, log_config=None), ServerState(), {})
        transport, _ = await asyncio.get_running_loop().create_connection(lambda: protocol, sock=ours)
        transport.pause_reading()
        transport.write(bytes(4_000_000))
        inside = transport.get_write_buffer_size()
        before = protocol._untaken()
        assert before > inside > 0
        theirs.recv(200_000)
        assert transport.get_write_buffer_size() == inside
        assert protocol._untaken() < before
        transport.abort()
        await asyncio.sleep(0)
