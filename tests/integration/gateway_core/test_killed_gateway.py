"""kill -9 of a gateway process at random points: each step is stored once, and watched once."""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal
from pathlib import Path

import grpc
import pytest
from gateway_process import GatewayProcess, new_job
from gateway_room import eventually
from scripted_trainer import ScriptedTrainer

from plaudit.gateway.v1 import training_job_pb2 as job_pb
from plaudit.gateway.v1 import training_job_service_pb2 as pb
from plaudit.gateway.v1.training_job_service_pb2_grpc import TrainingJobServiceStub
from plaudit.rpc import open_channel
from plaudit.trainer.v1 import trainer_service_pb2 as trainer_pb

LAST_STEP = 300
KILLS = 3


async def test_each_step_is_stored_and_watched_once_whenever_the_gateway_is_killed(tmp_path: Path) -> None:
    rng = random.Random(7)
    trainer = ScriptedTrainer()
    await trainer.start()
    gateway = GatewayProcess(tmp_path, trainer)
    await gateway.start()
    channel = open_channel(gateway.addresses["grpc_address"])
    stub = TrainingJobServiceStub(channel)
    events: list[pb.TrainingJobEvent] = []
    breaks = 0

    async def watch(job_id: str) -> None:
        nonlocal breaks
        while True:
            after = events[-1].cursor if events else ""
            try:
                request = pb.WatchTrainingJobRequest(id=job_id, after_cursor=after)
                async for event in stub.WatchTrainingJob(request):
                    if not event.HasField("bookmark"):
                        events.append(event)
                return
            except grpc.aio.AioRpcError as failure:
                assert failure.code() is grpc.StatusCode.UNAVAILABLE, failure
                breaks += 1
                await asyncio.sleep(0.05)

    async def train() -> None:
        run = trainer.newest()
        run.change(trainer_pb.RUN_STATE_RUNNING)
        for step in range(1, LAST_STEP + 1):
            run.step(step, total=LAST_STEP, reward_mean=step / LAST_STEP)
            if step % 50 == 0:
                run.checkpoint(step)
            await asyncio.sleep(0.02)
        run.change(trainer_pb.RUN_STATE_COMPLETED)

    try:
        job = await stub.CreateTrainingJob(new_job("3f9c"), timeout=20, wait_for_ready=True)
        watching = asyncio.create_task(watch(job.id))
        await eventually("the run", lambda: trainer.runs)
        run = trainer.newest()
        training = asyncio.create_task(train())
        for _ in range(KILLS):
            await asyncio.sleep(rng.uniform(0.2, 0.8))
            await gateway.end(signal.SIGKILL)
            await asyncio.sleep(rng.uniform(0.0, 0.3))
            await gateway.start()
            # The request whose answer may have been lost is repeated: still one job.
            assert (
                await stub.CreateTrainingJob(new_job("3f9c"), timeout=20, wait_for_ready=True)
            ).id == job.id
        await asyncio.wait_for(asyncio.gather(training, watching), 60)

        watched = [e.step_metrics.step for e in events if e.HasField("step_metrics")]
        assert watched == list(range(1, LAST_STEP + 1))
        assert len({e.cursor for e in events}) == len(events)
        assert breaks >= KILLS
        statuses = [e.status_changed.status for e in events if e.HasField("status_changed")]
        assert statuses[-1] == job_pb.TRAINING_JOB_STATUS_COMPLETED
        request = pb.GetTrainingJobMetricsRequest(id=job.id, keys=["reward_mean"], max_points=5000)
        series = await stub.GetTrainingJobMetrics(request, timeout=20)
        assert [(row.step, row.values["reward_mean"]) for row in series.metrics] == [
            (step, step / LAST_STEP) for step in range(1, LAST_STEP + 1)
        ]
        done = await stub.GetTrainingJob(pb.GetTrainingJobRequest(id=job.id), timeout=20)
        assert (done.current_step, done.attempt) == (LAST_STEP, 1)
        assert done.latest_checkpoint_id == f"{job.id}@{LAST_STEP}"
        await eventually("the deletion", lambda: trainer.deleted == [run.request.run_id])
        assert len(trainer.starts) == 1

        # From any cursor on, the rest comes, once.
        middle = len(events) // 2
        rest = stub.WatchTrainingJob(
            pb.WatchTrainingJobRequest(id=job.id, after_cursor=events[middle].cursor), timeout=20
        )
        assert [e.cursor async for e in rest] == [e.cursor for e in events[middle + 1 :]]
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            foreign = f"00000000-{events[0].cursor.rsplit('-', 1)[1]}"
            async for _ in stub.WatchTrainingJob(
                pb.WatchTrainingJobRequest(id=job.id, after_cursor=foreign), timeout=20
            ):
                pass
        assert refused.value.code() is grpc.StatusCode.OUT_OF_RANGE
    finally:
        await channel.close()
        with contextlib.suppress(ProcessLookupError):
            await gateway.end(signal.SIGKILL)
        await trainer.stop()


async def test_sigterm_ends_streams_with_unavailable_and_exits_0(tmp_path: Path) -> None:
    trainer = ScriptedTrainer()
    await trainer.start()
    gateway = GatewayProcess(tmp_path, trainer)
    await gateway.start()
    channel = open_channel(gateway.addresses["grpc_address"])
    try:
        stub = TrainingJobServiceStub(channel)
        job = await stub.CreateTrainingJob(new_job("1"), timeout=20)
        stream = stub.WatchTrainingJob(pb.WatchTrainingJobRequest(id=job.id), timeout=60)
        first = await stream.read()
        assert first.status_changed.status == job_pb.TRAINING_JOB_STATUS_QUEUED
        other = GatewayProcess(tmp_path, trainer)
        with pytest.raises(AssertionError, match="is in use by process"):
            await other.start()
        assert await gateway.end(signal.SIGTERM) == 0
        with pytest.raises(grpc.aio.AioRpcError) as ended:
            while True:
                await stream.read()
        assert ended.value.code() is grpc.StatusCode.UNAVAILABLE
    finally:
        await channel.close()
        await gateway.end(signal.SIGKILL)
        await trainer.stop()
