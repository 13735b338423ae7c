"""A room for a gateway over scripted trainers, and a store in a folder of its own."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "gateway_core"))
sys.path.insert(0, str(Path(__file__).parents[2] / "unit" / "gateway_core"))

import pytest
from gateway_room import Room

from gateway.store import Store


@pytest.fixture
async def room(tmp_path: Path) -> AsyncIterator[Room]:
    room = Room(tmp_path)
    try:
        yield room
    finally:
        await room.close()
        for trainer in room.trainers:
            await trainer.stop()


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    async with Store.open(tmp_path / "gateway.sqlite3") as store:
        yield store
