"""What answers at an address in plain text where no gRPC server does."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import Final

_REQUEST: Final = b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
_SETTINGS_FRAME: Final = 4
_FRAME_HEAD_BYTES: Final = 9


async def other_protocol(host: str, port: int, seconds: float) -> str | None:
    """What answers there, for people, where it is known not to be gRPC; None where it is silent, or HTTP/2.

    It is asked by hand, in plain text, within `seconds`.
    """
    said = await _said(host, port, seconds)
    if said.startswith(b"HTTP/"):
        line = json.dumps(said.partition(b"\r\n")[0].decode("latin-1"))
        return (
            f"an HTTP server answers there ({line}), and no gRPC server; give the port on which the reward "
            "server serves gRPC"
        )
    if not said or (len(said) >= _FRAME_HEAD_BYTES and said[3] == _SETTINGS_FRAME):
        return None
    return f"what answers there is no gRPC server: it said {json.dumps(said.decode('latin-1'))}"


async def _said(host: str, port: int, seconds: float) -> bytes:
    """The first bytes that it answers to a request of HTTP; none where it is silent."""
    with contextlib.suppress(OSError, TimeoutError):
        async with asyncio.timeout(seconds):
            reader, writer = await asyncio.open_connection(host, port)
            try:
                writer.write(_REQUEST)
                return await reader.read(64)
            finally:
                writer.transport.abort()
    return b""
