"""The reward behind the author kit, as an author would write it.

python -m reward_paths.kit_server --address HOST:PORT
"""

from __future__ import annotations

import asyncio

from reward_paths.work import PACED_REWARD, PACED_SECONDS, REWARD, length_share
from reward_service import Item, reward, serve


@reward(name=REWARD, min_value=0.0, max_value=1.0)
async def share(items: list[Item]) -> list[float]:
    """Length of the text, as a share of the longest."""
    return [length_share(item.text) for item in items]


@reward(name=PACED_REWARD, min_value=0.0, max_value=1.0, concurrency=1)
async def paced_share(items: list[Item]) -> list[float]:
    """The same, for a few thousand completions a second at most."""
    await asyncio.sleep(PACED_SECONDS)
    return [length_share(item.text) for item in items]


if __name__ == "__main__":
    serve([share, paced_share], name="benchmark", version="1.0.0")
