import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.with_name("gateway_core")))
sys.path.insert(0, str(Path(__file__).parent))

import pytest_asyncio
from rescore_room import Room


@pytest_asyncio.fixture
async def room(tmp_path):
    room = Room(tmp_path)
    await room.serve()
    await room.open()
    yield room
    await room.end()
