"""A room for a gateway, emptied after each test."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from gateway_room import Room


@pytest.fixture
async def room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Room]:
    monkeypatch.setenv("PLAUDIT_CONFIG", os.devnull)
    room = Room(tmp_path)
    try:
        yield room
    finally:
        await room.close()
        for trainer in room.trainers:
            await trainer.stop()
