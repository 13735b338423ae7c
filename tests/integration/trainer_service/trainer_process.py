"""A trainer service with scripted runs, and a client of it."""

import asyncio
import json
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc.aio

from plaudit.rpc import open_channel
from plaudit.trainer.v1 import trainer_service_pb2 as pb
from plaudit.trainer.v1 import trainer_service_pb2_grpc as pb_grpc
from trainer_service.launchers.local import LocalLauncher
from trainer_service.launchers.processes import processes_of
from trainer_service.server import running_service
from trainer_service.settings import TrainerSettings

SERVICE_PROGRAM = Path(__file__).with_name("scripted_service.py")
RUN_PROGRAM = Path(__file__).with_name("scripted_run.py")
PATIENCE = 30.0


class Trainer:
    """A client of the trainer service on one data directory; `start` and `stop` say how that is run."""

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir
        self.channel: grpc.aio.Channel | None = None
        self.stub: Any = None

    def dial(self, address: str) -> None:
        self.channel = open_channel(address)
        self.stub = pb_grpc.TrainerServiceStub(self.channel)

    async def hang_up(self) -> None:
        if self.channel is not None:
            await self.channel.close()

    def run_dir(self, run_id: str) -> Path:
        return self.data_dir.resolve() / "trainer" / "runs" / run_id

    def processes(self, run_id: str) -> list[int]:
        return processes_of(self.run_dir(run_id))

    async def start_run(
        self, run_id: str = "run_1", *, job_id: str = "job_1", attempt: int = 1, **script: object
    ) -> pb.Run:
        response = await self.stub.StartRun(
            start_request(run_id, job_id=job_id, attempt=attempt, **script), timeout=PATIENCE
        )
        return response.run

    async def start_run_once_free(self, run_id: str, *, within: float = PATIENCE, **run: Any) -> pb.Run:
        """For one that takes the place of a run whose process is gone: the kernel knows that a moment before
        the service does.
        """
        async with asyncio.timeout(within):
            while True:
                try:
                    return await self.start_run(run_id, **run)
                except grpc.aio.AioRpcError as error:
                    if error.code() is not grpc.StatusCode.RESOURCE_EXHAUSTED:
                        raise
                    await asyncio.sleep(0.05)

    async def get(self, run_id: str = "run_1") -> pb.Run:
        return (await self.stub.GetRun(pb.GetRunRequest(run_id=run_id), timeout=PATIENCE)).run

    async def events(self, run_id: str = "run_1", after: int = 0) -> list[pb.StreamRunEventsResponse]:
        request = pb.StreamRunEventsRequest(run_id=run_id, after_sequence=after)
        return [event async for event in self.stub.StreamRunEvents(request, timeout=PATIENCE)]

    async def until(self, holds: Callable[[pb.Run], bool], run_id: str = "run_1") -> pb.Run:
        async with asyncio.timeout(PATIENCE):
            while not holds(run := await self.get(run_id)):  # noqa: ASYNC110  # a client can only ask
                await asyncio.sleep(0.02)
        return run

    async def until_gone(self, run_id: str = "run_1", *, within: float = PATIENCE) -> None:
        async with asyncio.timeout(within):
            while await asyncio.to_thread(self.processes, run_id):  # noqa: ASYNC110  # nor is it told this
                await asyncio.sleep(0.02)

    async def until_true(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE):
            while not holds():  # noqa: ASYNC110  # the kernel does not tell it
                await asyncio.sleep(0.01)


class InnerTrainer(Trainer):
    """Its service runs in the test's own process: starting takes no time, killing is not possible."""

    async def start(self, *, runs: int = 1, linger: float = 20.0) -> None:
        settings = TrainerSettings.load(
            address="127.0.0.1:0", data_dir=self.data_dir, max_concurrent_runs=runs, linger_seconds=linger
        )
        self._service = running_service(settings, LocalLauncher((sys.executable, str(RUN_PROGRAM))))
        self.dial(await self._service.__aenter__())

    async def stop(self) -> None:
        await self.hang_up()
        await self._service.__aexit__(None, None, None)


class OuterTrainer(Trainer):
    """Its service is a process."""

    def __init__(self, data_dir: Path) -> None:
        super().__init__(data_dir)
        self.process: asyncio.subprocess.Process | None = None

    async def start(self, *extra: str) -> None:
        self.process = await asyncio.create_subprocess_exec(
            *(sys.executable, str(SERVICE_PROGRAM), str(self.data_dir), *extra),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        assert self.process.stdout is not None
        line = await asyncio.wait_for(self.process.stdout.readline(), PATIENCE)
        listening = json.loads(line)
        assert listening["service"] == "trainer"
        self.dial(listening["address"])

    async def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        assert self.process is not None
        if self.process.returncode is None:
            self.process.send_signal(number)
        status = await asyncio.wait_for(self.process.wait(), PATIENCE)
        await self.hang_up()
        return status

    async def kill(self) -> None:
        await self.stop(signal.SIGKILL)


def spec(**script: object) -> dict[str, Any]:
    return {
        "base_model": json.dumps(script),
        "output_name": "adder",
        "method": "grpo",
        "hyperparameters": {},
        "dataset": {"uri": "datasets/ab.parquet", "sha256": "ab", "row_count": 64},
        "rewards": [
            {
                "binding": {"name": "exact", "server": "builtin", "reward": "exact"},
                "addresses": ["127.0.0.1:7433"],
            }
        ],
    }


def start_request(
    run_id: str = "run_1", *, job_id: str = "job_1", attempt: int = 1, **script: object
) -> pb.StartRunRequest:
    return pb.StartRunRequest(
        run_id=run_id, job_id=job_id, attempt=attempt, spec_json=json.dumps(spec(**script))
    )
