"""frontier_judge and frontier_judge_ranking, asked directly, against an endpoint that a test scripts."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from scripted_endpoint import KEY, ScriptedEndpoint

from plaudit.service import Secrets
from plaudit.types.scoring import ChatMessage, Completion, Outcome, Prompt
from reward_service import Item, Reward
from reward_service.judge import JudgeProfile, JudgeSettings
from reward_service.rewards import open_frontier_judge

# A suite of its own: `make test-judge` installs the model server that it needs, and says where.
collect_ignore = [] if os.environ.get("PLAUDIT_JUDGE_PACKAGES") else ["test_judge_nobody_wrote.py"]

RUBRIC = [{"name": "clarity", "description": "Is it clear?"}]


class Room:
    """A judge with its files in a folder; may be closed and opened again."""

    def __init__(self, folder: Path, stack: AsyncExitStack) -> None:
        self.folder = folder
        self._stack = stack
        self._open: AsyncExitStack | None = None
        self.single: Reward
        self.ranking: Reward
        (folder / "secrets").mkdir()
        self.write_key(KEY)

    def write_key(self, key: str) -> None:
        path = self.folder / "secrets" / "judge-key"
        path.write_text(key)
        path.chmod(0o600)

    async def open(self, url: str, *, cache_max_verdicts: int = 1000, **profile: Any) -> None:
        """Opens it, with the only profile "main"; `profile` beyond what makes tests quick."""
        await self.close()
        quick = {"backoff_first_seconds": 0.01, "backoff_most_seconds": 0.05, "breaker_failures": 1000}
        named = {"model": "judge-1", "credential": "judge-key", "base_url": url}
        main = JudgeProfile(**{**named, **quick, **profile})
        self._open = await self._stack.enter_async_context(AsyncExitStack())
        self.single, self.ranking = await self._open.enter_async_context(
            open_frontier_judge(
                JudgeSettings(profiles={"main": main}, cache_max_verdicts=cache_max_verdicts),
                Secrets(self.folder / "secrets"),
                self.folder / "reward",
            )
        )

    async def close(self) -> None:
        """Ends it in an orderly way."""
        if self._open is not None:
            await self._open.aclose()
            self._open = None

    async def judge(
        self,
        *texts: str,
        seconds: float = 20.0,
        job_id: str = "job-1",
        columns: dict[str, Any] | None = None,
        **config: Any,
    ) -> list[Outcome]:
        """Outcomes of texts, each asked about by itself and all at once."""
        parsed = self.single.config.read(_json(config), "config")
        prompt = Prompt("g", (ChatMessage("user", "Why is the sky blue?"),), columns or {})
        deadline = asyncio.get_running_loop().time() + seconds
        items: list[Item[Any]] = [
            Item(prompt, Completion(f"c{n}", text, 5), parsed, job_id=job_id, deadline=deadline)
            for n, text in enumerate(texts)
        ]
        return [outcome for (outcome,) in await asyncio.gather(*(self.single.score([i]) for i in items))]

    async def rank(self, *texts: str, seconds: float = 20.0, **config: Any) -> list[Outcome]:
        """Outcomes of texts that are ranked together."""
        parsed = self.ranking.config.read(_json(config), "config")
        prompt = Prompt("g", (ChatMessage("user", "Why is the sky blue?"),), {})
        deadline = asyncio.get_running_loop().time() + seconds
        return await self.ranking.score(
            [
                Item(prompt, Completion(f"c{n}", text, 5), parsed, job_id="job-1", deadline=deadline)
                for n, text in enumerate(texts)
            ]
        )

    async def wrong(self, **config: Any) -> dict[str, str]:
        """What the check of a config finds, by field."""
        parsed = self.single.config.read(_json(config), "config")
        return {v.field: v.message for v in await self.single.check(parsed, "config", 10.0)}


def _json(config: dict[str, Any]) -> str:
    return json.dumps({"profile": "main", "rubric": RUBRIC, **config})


@pytest.fixture
async def room(tmp_path: Path) -> AsyncIterator[Room]:
    async with AsyncExitStack() as stack:
        room = Room(tmp_path, stack)
        yield room
        await room.close()


Serve = Callable[..., Any]


@pytest.fixture
async def serve_endpoint() -> AsyncIterator[Serve]:
    """Starts endpoints that end with the test."""
    async with AsyncExitStack() as stack:

        async def start(*answers: Any, script: Any = None) -> ScriptedEndpoint:
            endpoint = ScriptedEndpoint(script) if script else ScriptedEndpoint.in_turn(*answers)
            return await stack.enter_async_context(endpoint)

        yield start
