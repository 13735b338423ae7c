"""kill -9 of the gateway at random points under load: what was acknowledged is there, and nothing twice."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import signal
import sqlite3
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeVar

import grpc
import pyarrow.parquet as pq
import pytest

sys.path.append(str(Path(__file__).parents[1] / "integration" / "gateway_core"))

from gateway_process import GatewayProcess, new_job
from gateway_room import eventually
from scripted_trainer import ScriptedTrainer

from plaudit.gateway.v1 import dataset_service_pb2 as data_pb
from plaudit.gateway.v1 import training_job_service_pb2 as pb
from plaudit.gateway.v1.dataset_service_pb2_grpc import DatasetServiceStub
from plaudit.gateway.v1.training_job_service_pb2_grpc import TrainingJobServiceStub
from plaudit.rpc import open_channel
from plaudit.trainer.v1 import trainer_service_pb2 as trainer_pb

# Each kill is followed by a start, which takes its time on a machine with other things to do.
pytestmark = [pytest.mark.faults, pytest.mark.timeout(900)]

LONG: Final = os.environ.get("PLAUDIT_FAULTS") == "long"
KILLS: Final = 40 if LONG else 3
CREATORS: Final = 4
UPLOADERS: Final = 2
CHECKPOINT_EVERY: Final = 25

T = TypeVar("T")


@dataclass
class Acknowledged:
    """What callers were told is there: the job of each request id, the dataset of each file, both by id."""

    jobs: dict[str, str] = field(default_factory=dict)
    datasets: dict[str, tuple[str, str]] = field(default_factory=dict)
    steps: int = 0


class Load:
    """Clients that go on until they are told to stop, and ask again what was not answered."""

    def __init__(self, address: str, trainer: ScriptedTrainer) -> None:
        self.acknowledged = Acknowledged()
        self.stop = asyncio.Event()
        self._address = address
        self._trainer = trainer

    async def answered(self, ask: Callable[[grpc.aio.Channel], Awaitable[T]]) -> T:
        """The answer, of whichever gateway gives it."""
        while True:
            async with open_channel(self._address) as channel:
                try:
                    return await ask(channel)
                except grpc.aio.AioRpcError as failure:
                    gone = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)
                    assert failure.code() in gone, failure
            await asyncio.sleep(0.02)

    async def create_jobs(self, name: str) -> None:
        number = 0
        while not self.stop.is_set():
            number += 1
            request = new_job(f"{name}-{number}")
            for _ in range(2):  # asked again although it was answered: the same job
                job = await self.answered(
                    lambda channel, request=request: TrainingJobServiceStub(channel).CreateTrainingJob(
                        request, timeout=30
                    )
                )
                assert self.acknowledged.jobs.setdefault(request.request_id, job.id) == job.id

    async def upload_datasets(self, name: str) -> None:
        number = 0
        while not self.stop.is_set():
            number += 1
            text = "".join(json.dumps({"prompt": f"{name} {number} {row}"}) + "\n" for row in range(2000))
            whole = text.encode()

            async def upload(
                channel: grpc.aio.Channel, whole: bytes = whole, title: str = f"{name}-{number}"
            ):
                async def frames():
                    header = data_pb.UploadDatasetHeader(name=title, format="jsonl")
                    yield data_pb.UploadDatasetRequest(header=header)
                    for start in range(0, len(whole), 8192):
                        yield data_pb.UploadDatasetRequest(chunk=whole[start : start + 8192])

                return await DatasetServiceStub(channel).UploadDataset(frames(), timeout=30)

            dataset = await self.answered(upload)
            assert dataset.row_count == 2000
            self.acknowledged.datasets[f"{name}-{number}"] = (dataset.id, dataset.sha256)

    async def train(self) -> None:
        await eventually("the run", lambda: self._trainer.runs)
        run = self._trainer.newest()
        run.change(trainer_pb.RUN_STATE_RUNNING)
        while not self.stop.is_set():
            self.acknowledged.steps += 1
            step = self.acknowledged.steps
            run.step(step, total=1_000_000, x=float(step), y=-float(step))
            if step % CHECKPOINT_EVERY == 0:
                run.checkpoint(step)
            await asyncio.sleep(0.01)


async def test_what_was_acknowledged_is_there_and_nothing_twice(tmp_path: Path) -> None:
    rng = random.Random(2026)
    trainer = ScriptedTrainer(places=1)
    await trainer.start()
    gateway = GatewayProcess(tmp_path, trainer)
    await gateway.start()
    load = Load(gateway.addresses["grpc_address"], trainer)
    clients = [asyncio.create_task(load.train())]
    clients += [asyncio.create_task(load.create_jobs(f"creator-{n}")) for n in range(CREATORS)]
    clients += [asyncio.create_task(load.upload_datasets(f"file-{n}")) for n in range(UPLOADERS)]
    try:
        for _ in range(KILLS):
            told = len(load.acknowledged.jobs), len(load.acknowledged.datasets)

            def goes_on(told: tuple[int, int] = told) -> bool:
                known = load.acknowledged
                for client in clients:
                    if client.done():
                        client.result()
                return len(known.jobs) > told[0] and len(known.datasets) > told[1]

            # Never before something was acknowledged to lose, and then at any point.
            await eventually("answers", goes_on, seconds=60)
            await asyncio.sleep(rng.uniform(0.0, 0.3))
            await gateway.end(signal.SIGKILL)
            await gateway.start()
        load.stop.set()
        await asyncio.wait_for(asyncio.gather(*clients), 60)
        await assert_all_there(load, trainer)
    finally:
        load.stop.set()
        for client in clients:
            client.cancel()
        with contextlib.suppress(ProcessLookupError):
            await gateway.end(signal.SIGKILL)
        await trainer.stop()
    assert_consistent(tmp_path, load.acknowledged)


async def assert_all_there(load: Load, trainer: ScriptedTrainer) -> None:
    """By what the gateway tells."""
    known = load.acknowledged
    async with open_channel(load._address) as channel:
        jobs, datasets = TrainingJobServiceStub(channel), DatasetServiceStub(channel)
        listed, token = [], ""
        while True:
            page = await jobs.ListTrainingJobs(
                pb.ListTrainingJobsRequest(page_size=500, page_token=token), timeout=30
            )
            listed += [job.id for job in page.training_jobs]
            token = page.next_page_token
            if not token:
                break
        assert sorted(listed) == sorted(known.jobs.values())
        for name, (dataset_id, sha256) in known.datasets.items():
            dataset = await datasets.GetDataset(data_pb.GetDatasetRequest(id=dataset_id), timeout=30)
            assert (dataset.name, dataset.sha256, dataset.row_count) == (name, sha256, 2000)
        run = trainer.newest()

        async def caught_up() -> bool:
            request = pb.GetTrainingJobRequest(id=run.request.job_id)
            return (await jobs.GetTrainingJob(request, timeout=30)).current_step == known.steps

        await eventually("the last step", caught_up, seconds=60)
        first = max(1, known.steps - 4000)
        request = pb.GetTrainingJobMetricsRequest(id=run.request.job_id, from_step=first, max_points=5000)
        rows = (await jobs.GetTrainingJobMetrics(request, timeout=30)).metrics
        assert [(row.step, row.attempt, dict(row.values)) for row in rows] == [
            (step, 1, {"x": float(step), "y": -float(step)}) for step in range(first, known.steps + 1)
        ]
        # Told again after a kill, perhaps, and then of the same run.
        assert len({start.run_id for start in trainer.starts}) == 1


def assert_consistent(folder: Path, known: Acknowledged) -> None:
    """By what lies on the disk: each thing once, and every file as it was acknowledged."""
    with contextlib.closing(sqlite3.connect(folder / "gateway" / "gateway.sqlite3")) as store:

        def of(query: str) -> list[tuple]:
            return store.execute(query).fetchall()

        assert of("PRAGMA integrity_check") == [("ok",)]
        assert of("PRAGMA foreign_key_check") == []
        assert of("SELECT count(*) FROM jobs") == [(len(known.jobs),)]
        assert of("SELECT count(*) FROM points") == [(2 * known.steps,)]
        steps = of("SELECT count(*) FROM events WHERE kind = 'step_metrics'")
        assert steps == [(known.steps,)]
        # The extremes of every block are those of its points, whichever transaction was cut off.
        inside = (
            "FROM points WHERE job_key = b.job_key AND name_id = b.name_id AND attempt = b.attempt "
            "AND step BETWEEN 64 * block AND 64 * block + 63"
        )
        extremes = f"(SELECT min(value) {inside}) IS smallest AND (SELECT max(value) {inside}) IS largest"
        blocks = of(f"SELECT {extremes}, count(*) FROM point_blocks AS b GROUP BY 1")
        assert blocks == [(1, 2 * (known.steps // 64 + 1))]
        files = {folder / "artifacts" / uri: rows for uri, rows in of("SELECT uri, row_count FROM datasets")}
    for file, rows in files.items():
        assert pq.read_metadata(file).num_rows == rows
    assert [path for path in (folder / "artifacts" / "datasets").rglob("*.*") if path not in files] == []
