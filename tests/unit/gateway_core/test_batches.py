"""Taking together what is there already."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

import pytest

from gateway.jobs.batches import in_batches


async def source(count: int, closed: list[bool], fail: bool = False) -> AsyncGenerator[int, None]:
    try:
        for number in range(count):
            yield number
        if fail:
            raise ZeroDivisionError
    finally:
        closed.append(True)


async def test_everything_comes_once_in_order_and_bounded() -> None:
    closed: list[bool] = []
    batches = []
    async for batch in in_batches(source(1000, closed), 64):
        batches.append(batch)
        await asyncio.sleep(0)
    assert [n for batch in batches for n in batch] == list(range(1000))
    assert all(1 <= len(batch) <= 64 for batch in batches)
    assert len(batches) < 100
    assert closed == [True]


async def test_a_failure_comes_after_what_was_before_it() -> None:
    found: list[int] = []
    with pytest.raises(ZeroDivisionError):
        async for batch in in_batches(source(10, [], fail=True), 4):
            found.extend(batch)
    assert found == list(range(10))


async def test_leaving_early_ends_the_source() -> None:
    closed: list[bool] = []
    async with asyncio.timeout(5), aclosing(in_batches(source(1000, closed), 4)) as batches:
        await anext(batches)
        await asyncio.sleep(0.01)
    assert closed == [True]
