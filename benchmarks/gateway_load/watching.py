"""A thousand watchers of one job: how late events come, and what those cost that read nothing."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack, contextmanager
from pathlib import Path
from typing import Final

from harness import Figure, ProgramFailedError, Side, Spread, Turn, paired_ratio, progress

from gateway_load.scripted_trainer import ScriptedTrainer
from gateway_load.service import cpu_seconds, gateway_process, serving_gateway
from plaudit.gateway.v1 import training_job_pb2 as job_pb
from plaudit.gateway.v1 import training_job_service_pb2 as pb
from plaudit.gateway.v1.training_job_service_pb2_grpc import TrainingJobServiceStub
from plaudit.rpc import open_channel

EVENTS_A_SECOND: Final = 20
BY_SSE: Final = 900
BY_GRPC: Final = 100
STOPPED: Final = 20
GOAL_SECONDS: Final = 0.25
GOAL_MEGABYTES: Final = 100.0

_REPEATS: Final = 3
_TURN_SECONDS: Final = 10.0
_BACKLOG: Final = 2_500
_BACKLOG_CHARACTERS: Final = 4_000
"""Of each line: ten megabytes in all, more than the kernel takes for a reader that does not read."""

_MEGABYTE: Final = 1 << 20


async def watcher_figures(folder: Path, scale: float) -> AsyncIterator[Figure]:
    """Turns without and with readers that have stopped, by turns."""
    by_sse, by_grpc = int(BY_SSE * scale), int(BY_GRPC * scale)
    trainer = ScriptedTrainer()
    await trainer.start()
    async with AsyncExitStack() as stack:
        stack.push_async_callback(trainer.stop)
        announced = stack.enter_context(serving_gateway(folder, [trainer.address]))
        stub = TrainingJobServiceStub(
            await stack.enter_async_context(open_channel(announced["grpc_address"]))
        )
        job_id = (await stub.CreateTrainingJob(pb.CreateTrainingJobRequest(spec=_spec()))).id
        await trainer.begin()
        progress("writing a log of ten megabytes")
        for number in range(_BACKLOG):
            trainer.log(f"{number} " + "x" * _BACKLOG_CHARACTERS)
        trainer.step(1)
        cursor = await _cursor_of_first_step(stub, job_id)
        gateway = gateway_process()
        before = gateway.memory_info().rss
        stepping = asyncio.create_task(_step_for_ever(trainer))
        progress(f"{by_sse} watchers by server-sent events and {by_grpc} by gRPC")
        addresses = (announced["http_address"], announced["grpc_address"], job_id, cursor)
        side = stack.enter_context(_watchers(folder, *addresses, str(by_sse), str(by_grpc)))
        await asyncio.to_thread(side.await_ready)
        turns: dict[str, list[Turn]] = {"without": [], "with": []}
        memory, busy = [], []
        for _ in range(_REPEATS):
            for name, stopped in (("without", 0), ("with", STOPPED)):
                with _stopped_readers(announced["http_address"], job_id, stopped):
                    used = cpu_seconds(gateway)
                    turns[name].append(await asyncio.to_thread(side.take_turn))
                    busy.append((cpu_seconds(gateway) - used) / turns[name][-1]["seconds"])
                    memory.append(gateway.memory_info().rss - before)
                progress(f"{name} stopped readers: {turns[name][-1]}")
        stepping.cancel()
        for figure in _figures(turns, max(memory) / _MEGABYTE, busy):
            yield figure


def _figures(turns: dict[str, list[Turn]], megabytes: float, busy: list[float]) -> Iterator[Figure]:
    for wire in ("sse", "grpc"):
        late = Spread.of([turn[wire]["p99"] for turn in turns["without"]])
        yield Figure(
            f"gateway/watchers/{wire}",
            late.median,
            "seconds from the trainer's write to the client, 99th percentile",
            goal=GOAL_SECONDS,
            spread=late,
            more={
                "median": Spread.of([turn[wire]["p50"] for turn in turns["without"]]).median,
                "events": sum(turn[wire]["count"] for turn in turns["without"]),
            },
        )
        ratio = paired_ratio(*([turn[wire]["p99"] for turn in turns[name]] for name in ("with", "without")))
        yield Figure(
            f"gateway/watchers/{wire}/stopped_readers",
            ratio.median,
            f"times that long with {STOPPED} readers that take nothing",
            ours=Spread.of([turn[wire]["p99"] for turn in turns["with"]]).median,
            spread=ratio,
        )
    every = [*turns["without"], *turns["with"]]
    share = Spread.of(busy)
    yield Figure("gateway/watchers/cpu", share.median, "processors that the gateway keeps busy", spread=share)
    readers = Spread.of([turn["busy"] for turn in every])
    yield Figure(
        "gateway/watchers/readers_cpu",
        readers.median,
        "processors that readers keep busy",
        spread=readers,
    )
    yield Figure("gateway/watchers/memory", megabytes, "MiB more than without watchers", goal=GOAL_MEGABYTES)
    yield Figure(
        "gateway/watchers/out_of_order",
        max(turn["broken"] for turn in every),
        "events lost, doubled or out of order, and streams that ended",
        goal=0,
    )


def _spec() -> job_pb.TrainingJobSpec:
    return job_pb.TrainingJobSpec(
        base_model="builtin:tiny",
        dataset_id="builtin:additions",
        output_name="adder",
        rewards=[job_pb.RewardBinding(server="builtin", reward="exact_answer")],
    )


async def _cursor_of_first_step(stub: TrainingJobServiceStub, job_id: str) -> str:
    async for event in stub.WatchTrainingJob(pb.WatchTrainingJobRequest(id=job_id, kinds=["step_metrics"])):
        if event.HasField("step_metrics"):
            return str(event.cursor)
    raise ProgramFailedError("the job ended before its first step")


async def _step_for_ever(trainer: ScriptedTrainer) -> None:
    loop = asyncio.get_running_loop()
    began, number = loop.time(), 1
    while True:
        number += 1
        trainer.step(number)
        await asyncio.sleep(max(0.0, began + number / EVENTS_A_SECOND - loop.time()))


def _watchers(folder: Path, *arguments: str) -> Side:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    command = [sys.executable, "-m", "gateway_load.watchers", *arguments, str(_TURN_SECONDS)]
    return Side("watchers", command, log=folder / "watchers.log", environment=environment)


@contextmanager
def _stopped_readers(address: str, job_id: str, count: int) -> Iterator[Sequence[socket.socket]]:
    """Readers that ask for everything that happened to the job, and take nothing of it."""
    host, _, port = address.rpartition(":")
    with ExitStack() as stack:
        readers = []
        for _ in range(count):
            reader = stack.enter_context(socket.socket())
            reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            reader.connect((host, int(port)))
            reader.sendall(
                f"GET /v1/training_jobs/{job_id}/watch HTTP/1.1\r\nHost: {address}\r\n\r\n".encode()
            )
            readers.append(reader)
        yield readers
