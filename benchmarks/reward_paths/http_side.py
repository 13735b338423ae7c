"""The rival: httpx2, with so many completions in a call.

python -m reward_paths.http_side ADDRESS SERVER_PID COMPLETIONS COMPLETIONS_IN_CALL CALLS_AT_ONCE
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

import httpx2

from reward_paths.turns import Rollout, take_turns

Call: TypeAlias = list[dict[str, Any]]
"""Items of a call."""

_TIMEOUT_SECONDS = 60.0


class HttpPath:
    """Calls over connections that are kept alive, `at_once` of them at a time."""

    def __init__(self, address: str, in_call: int, at_once: int) -> None:
        self._in_call = in_call
        self._at_once = at_once
        self._loop = asyncio.new_event_loop()
        self._client = httpx2.AsyncClient(
            base_url=address,
            timeout=_TIMEOUT_SECONDS,
            limits=httpx2.Limits(max_connections=at_once, max_keepalive_connections=at_once),
        )

    def prepare(self, work: Rollout) -> list[Call]:
        """The items of each call; they are made JSON when they are sent."""
        items = [
            {
                "completion_id": completion.completion_id,
                "prompt": prompt.messages[0].content,
                "answer": prompt.columns["answer"],
                "text": completion.text,
            }
            for prompt, group in work
            for completion in group
        ]
        return [items[start : start + self._in_call] for start in range(0, len(items), self._in_call)]

    def score(self, requests: list[Call]) -> dict[str, float]:
        """Makes all calls."""
        return self._loop.run_until_complete(self._call_all(requests))

    def values(self, answers: dict[str, float]) -> Mapping[str, float]:
        """As they came."""
        return answers

    async def _call_all(self, requests: list[Call]) -> dict[str, float]:
        values: dict[str, float] = {}
        waiting = iter(requests)
        await asyncio.gather(*(self._work_off(waiting, values) for _ in range(self._at_once)))
        return values

    async def _work_off(self, waiting: Iterator[Call], values: dict[str, float]) -> None:
        for items in waiting:
            response = await self._client.post("/score", json={"items": items})
            response.raise_for_status()
            answered = response.json()["values"]
            for item, value in zip(items, answered, strict=True):
                values[item["completion_id"]] = value


if __name__ == "__main__":
    take_turns(HttpPath(sys.argv[1], int(sys.argv[4]), int(sys.argv[5])), int(sys.argv[2]), int(sys.argv[3]))
