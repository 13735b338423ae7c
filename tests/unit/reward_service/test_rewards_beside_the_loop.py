"""The built-in rewards over lists leave the event loop to others while they work on much."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from plaudit.types.scoring import Completion, Prompt, Scored
from reward_service import Item, Reward
from reward_service.rewards import exact_answer, format_check, repetition_penalty

LARGE = "a b " * 25_000


@pytest.mark.parametrize(
    ("reward", "config", "text"),
    [
        (repetition_penalty, {"ngram_size": 64}, LARGE),
        (exact_answer, {"extract": "boxed"}, LARGE),
        (exact_answer, {"extract": "regex", "pattern": "(c)"}, "a"),
        (format_check, {"grading": "graded"}, LARGE),
        (format_check, {"pattern": "c"}, "a"),
        (format_check, {"json_schema": {"anyOf": [{"type": "string"}] * 400}}, "1"),
    ],
    ids=lambda value: value.name if isinstance(value, Reward) else "",
)
async def test_the_loop_has_turns_meanwhile(reward: Reward, config: dict[str, Any], text: str) -> None:
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    read = reward.config.read(json.dumps(config), "config")
    items: list[Item[Any]] = [
        Item(Prompt("g", (), {"answer": 1}), Completion(str(i), text, 5), read) for i in range(16)
    ]
    task = asyncio.create_task(others())
    outcomes = await reward.score(items)
    task.cancel()
    assert turns >= 2
    assert len(outcomes) == 16
    assert all(isinstance(outcome, Scored) for outcome in outcomes)


async def test_the_answers_keep_their_order() -> None:
    read = exact_answer.config.read('{"extract": "whole"}', "config")
    items: list[Item[Any]] = [
        Item(Prompt("g", (), {"answer": i % 3}), Completion(str(i), f"{' ' * 2000}1", 5), read)
        for i in range(30)
    ]
    outcomes = await exact_answer.score(items)
    assert [o.value for o in outcomes if isinstance(o, Scored)] == [float(i % 3 == 1) for i in range(30)]
