"""Watchers of one job, in a process of their own: for every line of stdin one measured stretch of time.

python -m gateway_load.watchers HTTP_ADDRESS GRPC_ADDRESS JOB_ID CURSOR SSE_COUNT GRPC_COUNT SECONDS
"""

from __future__ import annotations

import asyncio
import gc
import json
import re
import sys
import time
from collections.abc import Sequence
from typing import Final

from gateway_load.scripted_trainer import CLOCK
from plaudit.gateway.v1 import training_job_service_pb2 as pb
from plaudit.gateway.v1.training_job_service_pb2_grpc import TrainingJobServiceStub
from plaudit.rpc import open_channel

_CONNECTING_AT_ONCE: Final = 50
_CHANNELS: Final = 4
_STEP_AND_CLOCK: Final = re.compile(rb'"step":(\d+),[^\n]*?"' + CLOCK.encode() + rb'":([0-9.e+]+)')
_PATIENCE_SECONDS: Final = 60.0
"""After a turn, for what was written in its last moment."""
_LOOK_SECONDS: Final = 0.1


class Watcher:
    """What one reader saw: the newest step, how many came out of order, and how late each came."""

    def __init__(self) -> None:
        self.step = 0
        self.began = asyncio.Event()
        self.broken = 0
        self.seen: list[tuple[float, float]] = []

    def take(self, step: int, written_at: float, now: float) -> None:
        """Notes a step that has come."""
        self.broken += self.step != 0 and step != self.step + 1
        self.step = step
        self.began.set()
        self.seen.append((written_at, now - written_at))


class SseReader(asyncio.Protocol):
    """Reads server-sent events for ever. It does no more than it must, for each of a thousand readers takes
    processor time that the gateway would have.
    """

    def __init__(self, watcher: Watcher) -> None:
        self._watcher = watcher
        self._rest = b""
        self.ended = asyncio.get_running_loop().create_future()

    def data_received(self, data: bytes) -> None:
        """Notes the steps of which the whole line is there."""
        now = time.time()
        data = self._rest + data
        end = data.rfind(b"\n") + 1
        self._rest = data[end:]
        for step, written_at in _STEP_AND_CLOCK.findall(data, 0, end):
            self._watcher.take(int(step), float(written_at), now)

    def connection_lost(self, error: Exception | None) -> None:
        """Ends the watch."""
        if not self.ended.done():
            self.ended.set_result(None)


async def watch_sse(watcher: Watcher, address: str, path: str) -> None:
    """Watches until the stream ends."""
    host, _, port = address.rpartition(":")
    loop = asyncio.get_running_loop()
    transport, reader = await loop.create_connection(lambda: SseReader(watcher), host, int(port))
    try:
        transport.write(f"GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n".encode())
        await reader.ended
    finally:
        transport.close()


async def watch_grpc(watcher: Watcher, stub: TrainingJobServiceStub, job_id: str, cursor: str) -> None:
    """Reads a gRPC stream for ever."""
    request = pb.WatchTrainingJobRequest(id=job_id, after_cursor=cursor)
    async for event in stub.WatchTrainingJob(request):
        if event.HasField("step_metrics"):
            step = event.step_metrics
            watcher.take(step.step, step.values[CLOCK], time.time())


async def main(arguments: Sequence[str]) -> None:
    """Connects all watchers, and then takes turns."""
    http, grpc, job_id, cursor, sse_count, grpc_count, seconds = arguments
    by_sse = [Watcher() for _ in range(int(sse_count))]
    by_grpc = [Watcher() for _ in range(int(grpc_count))]
    channels = [open_channel(grpc, options=[("grpc.use_local_subchannel_pool", 1)]) for _ in range(_CHANNELS)]
    path = f"/v1/training_jobs/{job_id}/watch?after_cursor={cursor}"
    tasks = set()
    for number, watcher in enumerate(by_sse):
        tasks.add(asyncio.create_task(watch_sse(watcher, http, path)))
        if number % _CONNECTING_AT_ONCE == 0:
            await asyncio.sleep(0.1)
    for number, watcher in enumerate(by_grpc):
        stub = TrainingJobServiceStub(channels[number % _CHANNELS])
        tasks.add(asyncio.create_task(watch_grpc(watcher, stub, job_id, cursor)))
    for watcher in (*by_sse, *by_grpc):
        await watcher.began.wait()
    # A collection would stop all readers, and count as lateness of what comes meanwhile.
    gc.disable()
    say(event="ready")
    while await asyncio.to_thread(sys.stdin.readline):
        for watcher in (*by_sse, *by_grpc):
            watcher.seen.clear()
        begin, used = time.time(), time.process_time()
        await asyncio.sleep(float(seconds))
        await all_beyond((*by_sse, *by_grpc), begin + float(seconds))
        busy = (time.process_time() - used) / (time.time() - begin)
        ended = sum(task.done() for task in tasks)
        say(
            event="turn",
            seconds=time.time() - begin,
            busy=busy,
            sse=latencies(by_sse, begin, float(seconds)),
            grpc=latencies(by_grpc, begin, float(seconds)),
            broken=sum(watcher.broken for watcher in (*by_sse, *by_grpc)) + ended,
            fewest=min(len(in_time(watcher, begin, float(seconds))) for watcher in (*by_sse, *by_grpc)),
        )
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    for channel in channels:
        await channel.close()


async def all_beyond(watchers: Sequence[Watcher], moment: float) -> None:
    """Waits until every watcher has what was written before this moment, or for long enough."""
    for _ in range(int(_PATIENCE_SECONDS / _LOOK_SECONDS)):
        if all(watcher.seen and watcher.seen[-1][0] >= moment for watcher in watchers):
            return
        await asyncio.sleep(_LOOK_SECONDS)


def in_time(watcher: Watcher, begin: float, seconds: float) -> list[float]:
    """How late each event came that was written within the turn."""
    return [late for written_at, late in watcher.seen if begin <= written_at < begin + seconds]


def latencies(watchers: Sequence[Watcher], begin: float, seconds: float) -> dict[str, float]:
    """Count and quantiles in seconds, over all events of all these watchers."""
    late = sorted(value for watcher in watchers for value in in_time(watcher, begin, seconds))
    if not late:
        sys.exit("no event came within the turn")
    quantiles = {name: late[int(len(late) * share)] for name, share in (("p50", 0.5), ("p99", 0.99))}
    return {"count": len(late), **quantiles, "max": late[-1]}


def say(**what: object) -> None:
    """A line for the benchmark."""
    print(json.dumps(what), flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
