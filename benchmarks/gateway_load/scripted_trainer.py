"""A trainer without training: takes one run, and journals a step whenever it is told to."""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections.abc import AsyncIterator
from typing import Any, Final

from plaudit.rpc import GrpcServer
from plaudit.trainer.v1 import trainer_service_pb2 as pb
from plaudit.trainer.v1 import trainer_service_pb2_grpc as pb_grpc

CLOCK: Final = "clock"
"""The metric that says when its step was journalled, in seconds since 1970: this machine's clock."""

_METRICS: Final = 20
_START_SECONDS: Final = 30.0


class ScriptedTrainer(pb_grpc.TrainerServiceServicer):
    """Serves plaudit.trainer.v1 on a free port of this machine."""

    def __init__(self) -> None:
        self._journal: list[pb.StreamRunEventsResponse] = []
        self._run = pb.Run()
        self._news = asyncio.Event()
        self._started = asyncio.Event()
        self._server = GrpcServer(["plaudit.trainer.v1.TrainerService"])
        pb_grpc.add_TrainerServiceServicer_to_server(self, self._server.server)
        self.address = ""

    async def start(self) -> None:
        """Listens."""
        self.address = f"127.0.0.1:{await self._server.start('127.0.0.1:0')}"

    async def stop(self) -> None:
        """Ends at once."""
        await self._server.stop(0)

    async def begin(self) -> None:
        """Waits for a run, and says that it runs. Raises TimeoutError."""
        async with asyncio.timeout(_START_SECONDS):
            await self._started.wait()
        self._run.state = pb.RUN_STATE_RUNNING
        self._write(state_changed=pb.RunStateChanged(state=pb.RUN_STATE_RUNNING))

    def step(self, number: int) -> None:
        """Journals a step with as many metrics as a run has, and with the time."""
        metrics = {f"reward/part_{n}/mean": math.sin(number + n) for n in range(_METRICS)}
        step = pb.StepCompleted(step=number, total_steps=1_000_000, metrics={**metrics, CLOCK: time.time()})
        self._write(step_completed=step)

    def log(self, text: str) -> None:
        """Journals a line of the log."""
        self._write(log_line=pb.LogLine(record_json=json.dumps({"level": "info", "event": text})))

    def _write(self, **event: Any) -> None:
        entry = pb.StreamRunEventsResponse(sequence=len(self._journal) + 1, **event)
        entry.event_time.GetCurrentTime()
        self._journal.append(entry)
        self._run.last_sequence = entry.sequence
        self._news.set()
        self._news = asyncio.Event()

    async def GetTrainerInfo(self, request: Any, context: Any) -> pb.GetTrainerInfoResponse:
        return pb.GetTrainerInfoResponse(trainer_version="0", max_concurrent_runs=1, trainer_id="trainer_1")

    async def ListRuns(self, request: Any, context: Any) -> pb.ListRunsResponse:
        return pb.ListRunsResponse(runs=[self._run] if self._run.run_id else [])

    async def StartRun(self, request: pb.StartRunRequest, context: Any) -> pb.StartRunResponse:
        if not self._run.run_id:
            self._run = pb.Run(run_id=request.run_id, job_id=request.job_id, attempt=request.attempt)
            self._run.state = pb.RUN_STATE_STARTING
            self._write(state_changed=pb.RunStateChanged(state=pb.RUN_STATE_STARTING))
            self._started.set()
        return pb.StartRunResponse(run=self._run)

    async def StreamRunEvents(
        self, request: pb.StreamRunEventsRequest, context: Any
    ) -> AsyncIterator[pb.StreamRunEventsResponse]:
        position = request.after_sequence
        while True:
            news = self._news
            while position < len(self._journal):
                yield self._journal[position]
                position += 1
            await news.wait()
