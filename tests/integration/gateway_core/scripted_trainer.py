"""A trainer that does what a test tells it: plaudit.trainer.v1 over real gRPC, journals written by hand."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from typing import Any

from plaudit.errors import FailedPreconditionError, NotFoundError, OutOfRangeError, ResourceExhaustedError
from plaudit.rpc import GrpcServer
from plaudit.trainer.v1 import trainer_service_pb2 as pb
from plaudit.trainer.v1 import trainer_service_pb2_grpc as pb_grpc

TERMINAL = {
    pb.RUN_STATE_PAUSED,
    pb.RUN_STATE_CANCELLED,
    pb.RUN_STATE_COMPLETED,
    pb.RUN_STATE_FAILED,
}


class ScriptedRun:
    """A run whose journal the test writes."""

    def __init__(self, request: pb.StartRunRequest) -> None:
        self.request = request
        self.journal: list[pb.StreamRunEventsResponse] = []
        self.state = pb.RUN_STATE_STARTING
        self.status_detail = ""
        self.news = asyncio.Event()
        self.pauses = 0
        self.cancels = 0
        self.on_pause: Callable[[], None] = lambda: None
        self.on_cancel: Callable[[], None] = lambda: self.change(pb.RUN_STATE_CANCELLED)
        self.change(pb.RUN_STATE_STARTING)

    @property
    def is_over(self) -> bool:
        return self.state in TERMINAL

    def write(self, **event: Any) -> None:
        entry = pb.StreamRunEventsResponse(sequence=len(self.journal) + 1, **event)
        entry.event_time.FromDatetime(datetime.now(UTC))
        self.journal.append(entry)
        self.news.set()
        self.news = asyncio.Event()

    def change(self, state: int, reason: str = "", error: pb.RunError | None = None) -> None:
        self.state = state
        self.write(state_changed=pb.RunStateChanged(state=state, reason=reason, error=error))

    def fail(self, code: str, message: str = "it broke") -> None:
        self.change(pb.RUN_STATE_FAILED, error=pb.RunError(code=code, message=message))

    def step(self, number: int, total: int = 100, **metrics: float) -> None:
        values = metrics or {"reward_mean": number / 100, "loss": 1.0 / number}
        self.write(step_completed=pb.StepCompleted(step=number, total_steps=total, metrics=values))

    def steps(self, first: int, last: int, **metrics: float) -> None:
        for number in range(first, last + 1):
            self.step(number, **metrics)

    def checkpoint_uri(self, step: int) -> str:
        return f"jobs/{self.request.job_id}/attempt-{self.request.attempt}/checkpoint-{step:06d}"

    def checkpoint(self, step: int) -> None:
        self.write(
            checkpoint_saved=pb.CheckpointSaved(
                step=step, uri=self.checkpoint_uri(step), size_bytes=10, sha256="ab"
            )
        )

    def remove_checkpoint(self, step: int) -> None:
        self.write(checkpoint_removed=pb.CheckpointRemoved(step=step, uri=self.checkpoint_uri(step)))

    def message(self) -> pb.Run:
        return pb.Run(
            run_id=self.request.run_id,
            job_id=self.request.job_id,
            attempt=self.request.attempt,
            state=self.state,
            last_sequence=len(self.journal),
            status_detail=self.status_detail,
        )


class ScriptedTrainer(pb_grpc.TrainerServiceServicer):
    """Serves the runs; `port` stays the same when it is stopped and started again."""

    def __init__(self, places: int = 1) -> None:
        self.trainer_id = f"trainer_{secrets.token_hex(8)}"
        self.places = places
        self.port = 0
        self.runs: dict[str, ScriptedRun] = {}
        self.deleted: list[str] = []
        self.tombstones: list[str] = []
        self.starts: list[pb.StartRunRequest] = []
        self.before_start: Callable[[pb.StartRunRequest], Any] = lambda request: None
        self.lists = 0
        self.list_seconds = 0.0
        self.check: pb.CheckRunResponse | None = pb.CheckRunResponse()
        """None: it does not know the call."""
        self.checks: list[pb.CheckRunRequest] = []
        self.count: Callable[[], pb.CountTokensResponse] = pb.CountTokensResponse
        self.counts: list[pb.CountTokensRequest] = []
        self._server: GrpcServer | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def start(self) -> None:
        self._server = GrpcServer(["plaudit.trainer.v1.TrainerService"])
        pb_grpc.add_TrainerServiceServicer_to_server(self, self._server.server)
        self.port = await self._server.start(f"127.0.0.1:{self.port}")

    async def stop(self) -> None:
        if self._server is not None:
            await self._server.stop(0)
            self._server = None

    def newest(self) -> ScriptedRun:
        return list(self.runs.values())[-1]

    async def GetTrainerInfo(self, request: Any, context: Any) -> pb.GetTrainerInfoResponse:
        return pb.GetTrainerInfoResponse(
            trainer_version="0", max_concurrent_runs=self.places, trainer_id=self.trainer_id
        )

    async def ListRuns(self, request: Any, context: Any) -> pb.ListRunsResponse:
        answer = pb.ListRunsResponse(runs=[run.message() for run in self.runs.values()])
        self.lists += 1
        await asyncio.sleep(self.list_seconds)
        return answer

    async def StartRun(self, request: pb.StartRunRequest, context: Any) -> pb.StartRunResponse:
        self.starts.append(request)
        pending = self.before_start(request)
        if pending is not None:
            await pending
        if request.run_id in self.tombstones:
            raise FailedPreconditionError("it was cancelled", reason="RUN_CANCELLED")
        if request.run_id not in self.runs:
            if sum(not run.is_over for run in self.runs.values()) >= self.places:
                raise ResourceExhaustedError("no place is free", reason="NO_CAPACITY", retry_after=0.1)
            self.runs[request.run_id] = ScriptedRun(request)
        assert self.runs[request.run_id].request == request
        return pb.StartRunResponse(run=self.runs[request.run_id].message())

    async def CheckRun(self, request: pb.CheckRunRequest, context: Any) -> pb.CheckRunResponse:
        self.checks.append(request)
        if self.check is None:
            return await super().CheckRun(request, context)
        return self.check

    async def CountTokens(self, request: pb.CountTokensRequest, context: Any) -> pb.CountTokensResponse:
        self.counts.append(request)
        return self.count()

    async def PauseRun(self, request: pb.PauseRunRequest, context: Any) -> pb.PauseRunResponse:
        run = self._known(request.run_id)
        run.pauses += 1
        run.on_pause()
        return pb.PauseRunResponse(run=run.message())

    async def CancelRun(self, request: pb.CancelRunRequest, context: Any) -> pb.CancelRunResponse:
        run = self.runs.get(request.run_id)
        if run is None:
            self.tombstones.append(request.run_id)
            never = pb.Run(run_id=request.run_id, state=pb.RUN_STATE_CANCELLED)
            return pb.CancelRunResponse(run=never)
        run.cancels += 1
        if not run.is_over:
            run.on_cancel()
        return pb.CancelRunResponse(run=run.message())

    async def StreamRunEvents(
        self, request: pb.StreamRunEventsRequest, context: Any
    ) -> AsyncIterator[pb.StreamRunEventsResponse]:
        run = self._known(request.run_id)
        position = request.after_sequence
        if position > len(run.journal):
            raise OutOfRangeError("beyond the newest entry", reason="SEQUENCE_UNKNOWN")
        while True:
            news = run.news
            while position < len(run.journal):
                yield run.journal[position]
                position += 1
            if run.is_over:
                return
            await news.wait()

    async def DeleteRun(self, request: pb.DeleteRunRequest, context: Any) -> pb.DeleteRunResponse:
        run = self.runs.get(request.run_id)
        if run is not None and not run.is_over:
            raise FailedPreconditionError("it is active", reason="RUN_ACTIVE")
        self.runs.pop(request.run_id, None)
        self.deleted.append(request.run_id)
        return pb.DeleteRunResponse()

    def _known(self, run_id: str) -> ScriptedRun:
        if run_id not in self.runs:
            raise NotFoundError(f"there is no run {run_id}")
        return self.runs[run_id]
