"""Takes together what is there already."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from typing import TypeVar

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class _End:
    error: Exception | None


async def in_batches(items: AsyncGenerator[Item, None], limit: int) -> AsyncGenerator[list[Item], None]:
    """The items in order, as many at a time as have come meanwhile, at most `limit`.

    At most `limit` items are read ahead. Raises what `items` raises, once all before it were taken.
    """
    ready: asyncio.Queue[Item | _End] = asyncio.Queue(limit)

    async def read() -> None:
        error: Exception | None = None
        try:
            async with aclosing(items):
                async for item in items:
                    await ready.put(item)
        except Exception as failure:
            error = failure
        await ready.put(_End(error))

    reader = asyncio.create_task(read())
    try:
        while True:
            batch: list[Item] = []
            item = await ready.get()
            while not isinstance(item, _End):
                batch.append(item)
                if len(batch) == limit or ready.empty():
                    break
                item = ready.get_nowait()
            if batch:
                yield batch
            if isinstance(item, _End):
                if item.error is not None:
                    raise item.error
                return
    finally:
        reader.cancel()
        await asyncio.wait([reader])
