"""A judge that takes a set time: OpenAI's chat completions on loopback, as cheap as they can be made.

python -m judging.endpoint MILLISECONDS
"""

from __future__ import annotations

import asyncio
import json
import os
import sys

from judging.work import CRITERION

_VERDICT = json.dumps({"rationale": "As the benchmark has it.", "scores": {CRITERION: 0.75}})
_BODY = json.dumps(
    {
        "object": "chat.completion",
        "choices": [
            {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": _VERDICT}}
        ],
        "usage": {"prompt_tokens": 500, "completion_tokens": 30},
    }
).encode()
_ANSWER = (
    b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(_BODY) + _BODY
)


class _Conversation(asyncio.Protocol):
    """Answers each request of a connection after the set time; one comes after the other."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._received = bytearray()
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, separator, rest = self._received.partition(b"\r\n\r\n")
        if not separator:
            return
        fields = (line.partition(b":") for line in head.lower().split(b"\r\n"))
        length = next(int(value) for name, _, value in fields if name == b"content-length")
        if len(rest) >= length:
            self._received.clear()
            asyncio.get_running_loop().call_later(self._seconds, self._answer)

    def _answer(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(_ANSWER)


async def serve(seconds: float) -> None:
    """Serves until stdin closes; says its address first."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: _Conversation(seconds), "127.0.0.1", 0, backlog=1024)
    print(json.dumps({"address": f"127.0.0.1:{server.sockets[0].getsockname()[1]}"}), flush=True)
    closed = asyncio.Event()
    loop.add_reader(sys.stdin, lambda: closed.set() if not os.read(0, 4096) else None)
    await closed.wait()
    server.close()


if __name__ == "__main__":
    asyncio.run(serve(float(sys.argv[1]) / 1000.0))
