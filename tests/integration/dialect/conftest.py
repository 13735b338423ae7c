"""Edges over a store of their own, with the built-in reward server registered and away."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.with_name("gateway_edges")))
sys.path.insert(0, str(Path(__file__).parent))

import pytest_asyncio
from edges import Edges, open_edges


@pytest_asyncio.fixture
async def edges(tmp_path: Path) -> AsyncIterator[Edges]:
    async with open_edges(tmp_path, configured={"builtin": ["127.0.0.1:1"]}) as opened:
        yield opened
