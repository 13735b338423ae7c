"""A judge endpoint on loopback that answers what a test tells it to, and remembers what it was asked."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Self

KEY = "sk-very-secret-0123456789"
"""The key of the profile "main" in these tests."""

SILENCE = object()
"""The call is never answered."""

CUT = object()
"""The connection is closed in the middle of the answer."""


@dataclass
class Call:
    """A request that came."""

    path: str
    headers: Mapping[str, str]
    body: dict[str, Any]

    @property
    def system(self) -> str:
        return str(self.body.get("system") or self.body["messages"][0]["content"])

    @property
    def user(self) -> str:
        return str(self.body["messages"][-1]["content"])


@dataclass
class Http:
    """An answer as it goes over the wire."""

    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)


def completion(text: object, finish: str = "stop", usage: object = (100, 20), **message: object) -> Http:
    """A chat completion. `usage` is tokens read and written, or what stands in its place."""
    tokens = {"prompt_tokens": usage[0], "completion_tokens": usage[1]} if isinstance(usage, tuple) else usage
    choice = {
        "index": 0,
        "finish_reason": finish,
        "message": {"role": "assistant", "content": text, **message},
    }
    return Http(body=json.dumps({"object": "chat.completion", "choices": [choice], "usage": tokens}).encode())


def scores(rationale: str = "It is clear.", **numbers: object) -> str:
    """A verdict in the form of a rubric."""
    return json.dumps({"rationale": rationale, "scores": numbers})


def error(status: int, message: str = "no", code: str = "", **headers: str) -> Http:
    """An error as OpenAI tells it. `retry_after` becomes retry-after."""
    body = json.dumps({"error": {"message": message, "code": code}}).encode()
    return Http(status, body, {name.replace("_", "-"): value for name, value in headers.items()})


Answer = Any
Script = Callable[[Call, int], Answer]


class ScriptedEndpoint:
    """Answers each call by `script`: given the call and how many came before it."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.calls: list[Call] = []
        self.under_way = 0
        self.most_under_way = 0
        self.came = asyncio.Event()
        self._server: asyncio.Server | None = None
        self._conversations: set[asyncio.Task[None]] = set()

    @classmethod
    def in_turn(cls, *answers: Answer) -> Self:
        """Gives these answers, the last one for ever."""
        return cls(lambda _, number: answers[min(number, len(answers) - 1)])

    @property
    def url(self) -> str:
        assert self._server is not None
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/v1"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._converse, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for conversation in self._conversations:
            conversation.cancel()
        await asyncio.gather(*self._conversations, return_exceptions=True)

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._conversations.add(task)
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
                while await self._answer(reader, writer):
                    pass
        finally:
            writer.close()
            self._conversations.discard(task)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = {
            name.strip().lower(): value.strip()
            for name, _, value in (line.partition(":") for line in head[1:])
            if name
        }
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        call = Call(head[0].split(" ")[1], headers, json.loads(body or b"{}"))
        number = len(self.calls)
        self.calls.append(call)
        self.came.set()
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        try:
            answer = self.script(call, number)
            if asyncio.iscoroutine(answer):
                answer = await answer
            if answer is SILENCE:
                await asyncio.Event().wait()
            if answer is CUT:
                writer.write(
                    b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 500\r\n\r\n{"
                )
                await writer.drain()
                return False
            if isinstance(answer, str):
                answer = completion(answer)
            fields = {
                "content-type": "application/json",
                "content-length": str(len(answer.body)),
                **answer.headers,
            }
            lines = [f"HTTP/1.1 {answer.status} X", *(f"{name}: {value}" for name, value in fields.items())]
            writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + answer.body)
            await writer.drain()
            return True
        finally:
            self.under_way -= 1
