"""A gateway's edges that ask for tokens, with one token of each role."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio

sys.path.insert(0, str(Path(__file__).parent.with_name("gateway_edges")))
sys.path.insert(0, str(Path(__file__).parent))

from access_room import Guarded, open_guarded


@pytest_asyncio.fixture
async def guarded(tmp_path: Path) -> AsyncIterator[Guarded]:
    async with open_guarded(tmp_path) as room:
        yield room
