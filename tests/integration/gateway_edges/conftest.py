"""Edges over a store of their own."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio

sys.path.insert(0, str(Path(__file__).parent))

from edges import Edges, open_edges


@pytest_asyncio.fixture
async def edges(tmp_path: Path) -> AsyncIterator[Edges]:
    async with open_edges(tmp_path) as opened:
        yield opened
