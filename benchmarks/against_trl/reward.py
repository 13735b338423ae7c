"""The reward of both sides: quick, or as slow as a judge. As a program, it is ours, served by the kit."""

from __future__ import annotations

import asyncio
import heapq
import zlib
from collections.abc import Sequence
from typing import Any

from reward_service import Item, reward, serve

SLOW_CONCURRENCY = 16
"""Completions that the slow reward scores at once."""

_SHORTEST_SECONDS, _LONGEST_SECONDS, _LEVELS = 0.25, 0.7, 10


def variety(text: str) -> float:
    """Share of the words that are different ones."""
    words = text.split()
    return len(set(words)) / max(len(words), 1)


def scoring_seconds(text: str) -> float:
    """What the slow reward takes for a completion: 0.25 to 0.7 s, a function of the text."""
    level = zlib.crc32(text.encode()) % _LEVELS
    return _SHORTEST_SECONDS + (_LONGEST_SECONDS - _SHORTEST_SECONDS) * level / (_LEVELS - 1)


def earliest_end(queue: Sequence[tuple[float, float]]) -> float:
    """When the slow reward has scored everything, if nothing but scoring took time.

    `queue` holds a pair for each completion: when it was there to be scored, and what its score takes, in
    seconds. Whatever is there first is scored first.
    """
    free = [0.0] * SLOW_CONCURRENCY
    for arrival, seconds in sorted(queue):
        heapq.heapreplace(free, max(free[0], arrival) + seconds)
    return max(free)


def trl_quick(completions: Sequence[list[dict[str, str]]], **_: Any) -> list[float]:
    """For TRL, in its process."""
    return [variety(turns[0]["content"]) for turns in completions]


async def trl_slow(completions: Sequence[list[dict[str, str]]], **_: Any) -> list[float]:
    """For TRL, which awaits it."""
    places = asyncio.Semaphore(SLOW_CONCURRENCY)

    async def score(text: str) -> float:
        async with places:
            await asyncio.sleep(scoring_seconds(text))
        return variety(text)

    return await asyncio.gather(*(score(turns[0]["content"]) for turns in completions))


@reward(min_value=0.0, max_value=1.0)
async def quick(items: list[Item]) -> list[float]:
    """Share of the words that are different ones."""
    return [variety(item.text) for item in items]


@reward(min_value=0.0, max_value=1.0, concurrency=SLOW_CONCURRENCY)
async def slow(item: Item) -> float:
    """The same, after 0.25 to 0.7 s."""
    await asyncio.sleep(scoring_seconds(item.text))
    return variety(item.text)


if __name__ == "__main__":
    serve([quick, slow], name="benchmark", version="1.0.0")
