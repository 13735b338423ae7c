"""Watchers whose connections are cut at 200 random points each see every event once, in order."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import grpc
import httpx2
import pytest
from gateway_process import GatewayProcess, new_job
from gateway_room import eventually
from scripted_trainer import ScriptedRun, ScriptedTrainer

from plaudit.gateway.v1 import training_job_service_pb2 as pb
from plaudit.gateway.v1.training_job_service_pb2_grpc import TrainingJobServiceStub
from plaudit.rpc import open_channel
from plaudit.trainer.v1 import trainer_service_pb2 as trainer_pb

CUTS: Final = 200
CHECKPOINT: Final = 40
LOST_AT: Final = 60
SERIES_STEPS: Final = 100
ODD: Final = {3: math.nan, 5: math.inf, 7: -math.inf}


def value_of(attempt: int, step: int) -> float:
    """What an attempt reports of a step."""
    return ODD.get(step, attempt * 10_000 + step)


@dataclass
class Seen:
    """What a watcher saw: cursors with what stood behind them, and how often it was cut."""

    events: list[tuple[str, str, Any]] = field(default_factory=list)
    cuts: int = 0

    @property
    def cursor(self) -> str:
        return self.events[-1][0] if self.events else ""


async def watch_by_grpc(seen: Seen, address: str, job_id: str, rng: random.Random) -> None:
    """Each time on a connection of its own, until the job's end."""
    while True:
        channel = open_channel(address)
        call = TrainingJobServiceStub(channel).WatchTrainingJob(
            pb.WatchTrainingJobRequest(id=job_id, after_cursor=seen.cursor), timeout=60
        )
        left = rng.randint(0, 12)
        try:
            while seen.cuts >= CUTS or left > 0:
                event = await call.read()
                if event is grpc.aio.EOF:
                    return
                kind = event.WhichOneof("event")
                if kind == "bookmark":
                    continue
                step = event.step_metrics
                told = (step.attempt, step.step, dict(step.values)) if kind == "step_metrics" else None
                seen.events.append((event.cursor, kind, told))
                left -= 1
            seen.cuts += 1
        finally:
            # Without a farewell to the call: the connection goes, as when a network does.
            await channel.close()


async def watch_by_sse(seen: Seen, address: str, job_id: str, rng: random.Random) -> None:
    """Cut after any byte, in the middle of an event as well; until the answer that nothing more comes."""
    host, _, port = address.rpartition(":")
    while True:
        reader, writer = await asyncio.open_connection(host, int(port))
        last = f"Last-Event-ID: {seen.cursor}\r\n" if seen.cursor else ""
        path = f"/v1/training_jobs/{job_id}/watch"
        writer.write(f"GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n{last}\r\n".encode())
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            if b" 204 " in head.splitlines()[0]:
                return
            assert b" 200 " in head.splitlines()[0], head
            left = rng.randint(0, 2500) if seen.cuts < CUTS else -1
            stream = b""
            while left != 0 and (data := await reader.read(left if left > 0 else 65536)):
                left -= len(data) if left > 0 else 0
                stream = take_events(seen, stream + data)
            seen.cuts += left == 0
        finally:
            writer.transport.abort()


def take_events(seen: Seen, stream: bytes) -> bytes:
    """Takes the whole events out of a stream of HTTP chunks; returns what is left of it."""
    while True:
        size, end, rest = stream.partition(b"\r\n")
        if not end or len(rest) < int(size, 16) + 2:
            return stream
        for block in rest[: int(size, 16)].split(b"\r\n\r\n"):
            lines = dict(line.split(b": ", 1) for line in block.splitlines() if b": " in line)
            if b"id" in lines and lines[b"event"] != b"bookmark":
                kind, body = lines[b"event"].decode(), json.loads(lines[b"data"])
                step = body.get("step_metrics")
                told = step and (step["attempt"], step["step"], step["values"])
                seen.events.append((lines[b"id"].decode(), kind, told))
        stream = rest[int(size, 16) + 2 :]


async def train(trainer: ScriptedTrainer, watchers: list[Seen]) -> int:
    """Two attempts, the first of which is lost behind its checkpoint; the last step of the second."""

    async def run_of(attempt: int) -> ScriptedRun:
        def started() -> ScriptedRun | None:
            return next((r for r in trainer.runs.values() if r.request.attempt == attempt), None)

        found = await eventually(f"attempt {attempt}", started)
        assert isinstance(found, ScriptedRun)
        return found

    run = await run_of(1)
    run.change(trainer_pb.RUN_STATE_RUNNING)
    for step in range(1, LOST_AT + 1):
        run.step(step, x=value_of(1, step))
        if step == CHECKPOINT:
            run.checkpoint(step)
        await asyncio.sleep(0.005)
    run.fail("process_died")
    run = await run_of(2)
    run.change(trainer_pb.RUN_STATE_RUNNING)
    step = CHECKPOINT
    # Every cut must fall into a job that goes on, however fast or slow the machine is.
    while step < SERIES_STEPS or any(seen.cuts < CUTS for seen in watchers):
        step += 1
        run.step(step, x=value_of(2, step))
        await asyncio.sleep(0.005)
    run.change(trainer_pb.RUN_STATE_COMPLETED)
    return step


async def test_every_event_is_seen_once_whichever_point_the_connection_is_cut_at(tmp_path: Path) -> None:
    trainer = ScriptedTrainer()
    await trainer.start()
    gateway = GatewayProcess(tmp_path, trainer)
    await gateway.start()
    grpc_address, http_address = gateway.addresses["grpc_address"], gateway.addresses["http_address"]
    try:
        async with open_channel(grpc_address) as channel, asyncio.timeout(100):
            stub = TrainingJobServiceStub(channel)
            job_id = (await stub.CreateTrainingJob(new_job("cut"), timeout=20)).id
            by_grpc, by_sse = Seen(), Seen()
            last, *_ = await asyncio.gather(
                train(trainer, [by_grpc, by_sse]),
                watch_by_grpc(by_grpc, grpc_address, job_id, random.Random(1)),
                watch_by_sse(by_sse, http_address, job_id, random.Random(2)),
            )
            watched = stub.WatchTrainingJob(pb.WatchTrainingJobRequest(id=job_id), timeout=30)
            uncut = [event async for event in watched if not event.HasField("bookmark")]

            for seen in (by_grpc, by_sse):
                assert seen.cuts >= CUTS
                assert [cursor for cursor, _, _ in seen.events] == [event.cursor for event in uncut]
                assert [kind for _, kind, _ in seen.events] == [event.WhichOneof("event") for event in uncut]
            expected = [
                *((1, step, value_of(1, step)) for step in range(1, LOST_AT + 1)),
                *((2, step, value_of(2, step)) for step in range(CHECKPOINT + 1, last + 1)),
            ]
            steps = [told for _, kind, told in by_grpc.events if kind == "step_metrics"]
            assert [(attempt, step) for attempt, step, _ in steps] == [e[:2] for e in expected]
            assert [values["x"] for _, _, values in steps] == pytest.approx(
                [e[2] for e in expected], rel=0, abs=0, nan_ok=True
            )
            words = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
            assert [
                (attempt, step, words.get(values["x"], values["x"]))
                for attempt, step, values in (t for _, kind, t in by_sse.events if kind == "step_metrics")
            ] == [(a, s, pytest.approx(v, rel=0, abs=0, nan_ok=True)) for a, s, v in expected]

            await assert_one_line(stub, http_address, job_id)
    finally:
        with contextlib.suppress(ProcessLookupError):
            await gateway.end(9)
        await trainer.stop()


async def assert_one_line(stub: TrainingJobServiceStub, http_address: str, job_id: str) -> None:
    """The series over gRPC, JSON and CSV: one row a step, of the attempt that counts, odd values kept."""
    line = {
        step: (attempt, value_of(attempt, step))
        for step in range(1, SERIES_STEPS + 1)
        for attempt in [1 if step <= CHECKPOINT else 2]
    }
    request = pb.GetTrainingJobMetricsRequest(id=job_id, keys=["x"], to_step=SERIES_STEPS, max_points=500)
    rows = (await stub.GetTrainingJobMetrics(request, timeout=20)).metrics
    assert [(row.step, row.attempt) for row in rows] == [(step, line[step][0]) for step in line]
    values = [value for _, value in line.values()]
    assert [row.values["x"] for row in rows] == pytest.approx(values, rel=0, abs=0, nan_ok=True)
    query = {"keys": "x", "to_step": SERIES_STEPS, "max_points": 500}
    url = f"http://{http_address}/v1/training_jobs/{job_id}/metrics"
    async with httpx2.AsyncClient(trust_env=False, timeout=20) as http:
        body = (await http.get(url, params=query)).json()
        csv = (await http.get(url, params=query, headers={"Accept": "text/csv"})).text
    words = {3: "NaN", 5: "Infinity", 7: "-Infinity"}
    assert [(row["step"], row["attempt"], row["values"]["x"]) for row in body["metrics"]] == [
        (step, attempt, words.get(step, value)) for step, (attempt, value) in line.items()
    ]
    assert len(csv.splitlines()) == 1 + SERIES_STEPS
    for word in words.values():
        assert any(word in row.split(",") for row in csv.splitlines()[1:8])
