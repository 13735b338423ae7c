"""A server made with the author kit, whose reward says how often it was asked about a completion."""

from __future__ import annotations

import asyncio
import collections

from reward_service import Item, reward, serve

asked: collections.Counter[str] = collections.Counter()


@reward(description="How often this completion was scored.", min_value=1, deterministic=False)
async def times_asked(item: Item) -> float:
    asked[item.completion.completion_id] += 1
    await asyncio.sleep(0.3)
    assert item.columns == {"answer": 72}
    return asked[item.completion.completion_id]


if __name__ == "__main__":
    serve([times_asked])
