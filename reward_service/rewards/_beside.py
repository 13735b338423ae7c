"""Scoring beside the event loop, which serves every other session meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from reward_service._item import Item
from reward_service._reward import Answer

_QUICK_CHARACTERS: Final = 10_000
"""What takes no more than some milliseconds, for all that is linear in the text."""
_MOST_AT_ONCE: Final = 8

# Two, so that one long text does not hold up all others. What is cancelled while it runs, ends by itself.
_THREADS: Final = ThreadPoolExecutor(2, thread_name_prefix="rewards")


async def beside_the_loop(
    items: Sequence[Item[Any]], answer: Callable[[Item[Any]], Answer], *, costly: bool = False
) -> list[Answer]:
    """`answer` of each item: at once where the texts are short, else in a thread, portion by portion.

    `costly` is work whose time is bounded, but not by the length of the text.
    """
    if not costly and sum(map(_length, items)) <= _QUICK_CHARACTERS:
        return [answer(item) for item in items]
    loop = asyncio.get_running_loop()
    answers: list[Answer] = []
    for portion in _portions(items):
        answers += await loop.run_in_executor(_THREADS, lambda items: [answer(i) for i in items], portion)
    return answers


def _portions(items: Sequence[Item[Any]]) -> Iterator[list[Item[Any]]]:
    portion: list[Item[Any]] = []
    characters = 0
    for item in items:
        portion.append(item)
        characters += _length(item)
        if characters > _QUICK_CHARACTERS or len(portion) == _MOST_AT_ONCE:
            yield portion
            portion, characters = [], 0
    if portion:
        yield portion


def _length(item: Item[Any]) -> int:
    return len(item.completion.prefill) + len(item.completion.text)
