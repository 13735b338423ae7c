"""A TCP proxy that does to connections what networks do: delays them, cuts them, slices them, goes silent."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from typing import Literal, TypeAlias

Trouble: TypeAlias = Literal["delays", "slices", "cuts", "goes silent"]

_DELAY_SECONDS = 0.03
_SLICE_BYTES = 5
_CUT_AFTER_BYTES = 20_000
_SILENT_AFTER_BYTES = 4_000


class BadNetwork:
    """Leads to one port of this machine. `connections` counts those that were made."""

    def __init__(self, target: int, trouble: Trouble) -> None:
        self._target = target
        self._trouble = trouble
        self.connections = 0
        self.port = 0

    async def serve(self, stop: asyncio.Event, listening: threading.Event) -> None:
        """Serves until `stop`."""
        server = await asyncio.start_server(self._pass_on, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        listening.set()
        await stop.wait()
        server.close()

    async def _pass_on(self, near_in: asyncio.StreamReader, near_out: asyncio.StreamWriter) -> None:
        self.connections += 1
        is_first = self.connections == 1
        far_in, far_out = await asyncio.open_connection("127.0.0.1", self._target)
        ways = (self._pump(near_in, far_out, is_first), self._pump(far_in, near_out, is_first))
        tasks = [asyncio.create_task(way) for way in ways]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            near_out.close()
            far_out.close()

    async def _pump(
        self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, is_first_connection: bool
    ) -> None:
        passed = 0
        with contextlib.suppress(ConnectionError):
            while data := await source.read(65_536):
                passed += len(data)
                if self._trouble == "cuts" and passed > _CUT_AFTER_BYTES:
                    return
                if self._trouble == "goes silent" and is_first_connection and passed > _SILENT_AFTER_BYTES:
                    continue  # as if every packet were dropped: nobody is told
                if self._trouble == "delays":
                    await asyncio.sleep(_DELAY_SECONDS)
                step = _SLICE_BYTES if self._trouble == "slices" else len(data)
                for start in range(0, len(data), step):
                    sink.write(data[start : start + step])
                    await sink.drain()


@contextlib.contextmanager
def bad_network(target: int, trouble: Trouble) -> Iterator[BadNetwork]:
    """Runs one in a thread of its own."""
    network = BadNetwork(target, trouble)
    loop = asyncio.new_event_loop()
    stop, listening = asyncio.Event(), threading.Event()
    thread = threading.Thread(target=loop.run_until_complete, args=(network.serve(stop, listening),))
    thread.start()
    assert listening.wait(10)
    try:
        yield network
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(10)
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()
