"""Every cell of the table of statuses over gRPC, REST and the command line, and the loss of a run."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import grpc
import httpx2
import pytest

sys.path.append(str(Path(__file__).parents[1] / "integration" / "gateway_core"))

from gateway_process import GatewayProcess, new_job
from gateway_room import eventually
from scripted_trainer import ScriptedRun, ScriptedTrainer

from plaudit.cli import main as plaudit
from plaudit.errors import FailedPreconditionError
from plaudit.gateway.v1 import training_job_pb2 as job_pb
from plaudit.gateway.v1 import training_job_service_pb2 as pb
from plaudit.gateway.v1.training_job_service_pb2_grpc import TrainingJobServiceStub
from plaudit.rpc import error_from_rpc, open_channel
from plaudit.trainer.v1 import trainer_service_pb2 as trainer_pb

WIRES: Final = ("grpc", "rest", "cli")
VERBS: Final = ("pause", "cancel", "resume")

# What a caller is answered, and the status to which the job then comes; "-" is a refusal. A job whose run
# must be stopped passes through pausing and cancelling; one that is queued is given to the trainer again.
TABLE: Final = """
status        pause              cancel                 resume
queued        paused             cancelled              -
provisioning  pausing>paused     cancelling>cancelled   -
configuring   pausing>paused     cancelling>cancelled   -
running       pausing>paused     cancelling>cancelled   -
pausing       pausing            cancelling>cancelled   -
paused        paused             cancelled              queued>configuring
cancelling    -                  cancelling             -
failed        -                  -                      queued>configuring
completed     -                  -                      -
cancelled     -                  cancelled              -
"""
ROWS: Final = {
    status: dict(zip(VERBS, cells, strict=True))
    for status, *cells in (line.split() for line in TABLE.strip().splitlines()[1:])
}

LOSSES: Final = {
    "configuring": "queued",
    "running": "queued",
    "pausing": "paused",
    "cancelling": "cancelled",
}


@dataclass(frozen=True)
class Answer:
    """Status of the job, or the words of a refusal and the code that its wire has for it."""

    status: str = ""
    refusal: str = ""
    code: object = None


class Floor:
    """A gateway, a trainer that does what it is told, and the three ways in."""

    def __init__(self, gateway: GatewayProcess, trainer: ScriptedTrainer, channel: grpc.aio.Channel) -> None:
        self.trainer = trainer
        self.jobs = TrainingJobServiceStub(channel)
        self._grpc_address = gateway.addresses["grpc_address"]
        self._http = httpx2.AsyncClient(
            base_url=f"http://{gateway.addresses['http_address']}", trust_env=False, timeout=30
        )
        self._made = 0

    async def create(self) -> str:
        self._made += 1
        return str((await self.jobs.CreateTrainingJob(new_job(f"job-{self._made}"), timeout=20)).id)

    async def get(self, job_id: str) -> job_pb.TrainingJob:
        return await self.jobs.GetTrainingJob(pb.GetTrainingJobRequest(id=job_id), timeout=20)

    async def status(self, job_id: str) -> str:
        return word((await self.get(job_id)).status)

    async def reaches(self, job_id: str, status: str) -> None:
        async def reached() -> bool:
            return await self.status(job_id) == status

        await eventually(f"{job_id} to be {status}", reached)

    async def run_of(self, job_id: str, attempt: int = 1) -> ScriptedRun:
        def started() -> ScriptedRun | None:
            runs = self.trainer.runs.values()
            return next((r for r in runs if (r.request.job_id, r.request.attempt) == (job_id, attempt)), None)

        found = await eventually(f"attempt {attempt} of {job_id}", started)
        assert isinstance(found, ScriptedRun)
        return found

    async def ask(self, wire: str, verb: str, job_id: str) -> Answer:
        ways = {"grpc": self._by_grpc, "rest": self._by_rest, "cli": self._by_cli}
        return await ways[wire](verb, job_id)

    async def _by_grpc(self, verb: str, job_id: str) -> Answer:
        request: Any = getattr(pb, f"{verb.capitalize()}TrainingJobRequest")(id=job_id)
        try:
            job = await getattr(self.jobs, f"{verb.capitalize()}TrainingJob")(request, timeout=20)
        except grpc.aio.AioRpcError as refused:
            error = error_from_rpc(refused)
            assert error.reason == "STATUS_FORBIDS"
            return Answer(refusal=error.message, code=refused.code())
        return Answer(word(job.status))

    async def _by_rest(self, verb: str, job_id: str) -> Answer:
        answer = await self._http.post(f"/v1/training_jobs/{job_id}/{verb}")
        body = answer.json()
        if answer.status_code == 200:
            return Answer(body["status"])
        assert body["error"]["code"] == "STATUS_FORBIDS"
        return Answer(refusal=body["error"]["message"], code=answer.status_code)

    async def _by_cli(self, verb: str, job_id: str) -> Answer:
        arguments = ["plaudit", "job", verb, job_id, "--json", "--address", self._grpc_address]
        status, out, err = await asyncio.to_thread(run_plaudit, arguments)
        if status == 0:
            return Answer(json.loads(out)["status"])
        return Answer(refusal=err, code=status)

    async def close(self) -> None:
        await self._http.aclose()


REFUSED: Final = {"grpc": grpc.StatusCode.FAILED_PRECONDITION, "rest": 400, "cli": 1}


def run_plaudit(arguments: list[str]) -> tuple[int, str, str]:
    """The command in this process: a process for each cell would take most of the time."""
    out, err, before = io.StringIO(), io.StringIO(), sys.argv
    sys.argv = arguments
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            plaudit()
        status = 0
    except SystemExit as exit:
        status = exit.code if isinstance(exit.code, int) else int(exit.code is not None)
    finally:
        sys.argv = before
    return status, out.getvalue(), err.getvalue()


def word(status: int) -> str:
    """RUNNING of the proto is running everywhere else."""
    return job_pb.TrainingJobStatus.Name(status).removeprefix("TRAINING_JOB_STATUS_").lower()


@pytest.fixture
async def floor(tmp_path: Path) -> AsyncIterator[Floor]:
    trainer = ScriptedTrainer(places=1000)
    await trainer.start()
    # It is away at first, so that jobs stay queued.
    await trainer.stop()
    gateway = GatewayProcess(tmp_path, trainer)
    await gateway.start()
    async with open_channel(gateway.addresses["grpc_address"]) as channel:
        floor = Floor(gateway, trainer, channel)
        try:
            yield floor
        finally:
            await floor.close()
            await gateway.end(9)
            await trainer.stop()


async def bring_to(floor: Floor, job_id: str, status: str) -> None:
    """Lets the trainer do what leads to a status, from configuring on."""
    run = await floor.run_of(job_id)
    await floor.reaches(job_id, "configuring")
    if status == "configuring":
        run.on_pause = lambda: run.change(trainer_pb.RUN_STATE_PAUSED)
        return
    run.change(trainer_pb.RUN_STATE_RUNNING)
    run.steps(1, 5)
    await floor.reaches(job_id, "running")
    ask: Callable[[str], Any] = lambda verb: floor.ask("grpc", verb, job_id)  # noqa: E731
    match status:
        case "running":
            run.on_pause = lambda: pause_at(run, 5)
        case "pausing":
            await ask("pause")
        case "paused":
            run.on_pause = lambda: pause_at(run, 5)
            await ask("pause")
        case "cancelling":
            run.on_cancel = lambda: None
            await ask("cancel")
        case "cancelled":
            await ask("cancel")
        case "failed":
            run.checkpoint(5)
            run.fail("config_error")
        case "completed":
            run.checkpoint(5)
            run.change(trainer_pb.RUN_STATE_COMPLETED)
    await floor.reaches(job_id, status)


def pause_at(run: ScriptedRun, step: int) -> None:
    """As a trainer pauses, once: with a checkpoint."""
    if not run.is_over:
        run.checkpoint(step)
        run.change(trainer_pb.RUN_STATE_PAUSED)


async def check_row(floor: Floor, status: str, ready: Callable[[], Any]) -> None:
    """All cells of a row on all wires. `ready` makes a job that stands there."""
    still = await ready()
    for verb, cell in ROWS[status].items():
        answered, _, final = cell.partition(">")
        for wire in WIRES:
            where = f"{verb} of a job that is {status}, by {wire}"
            if answered in ("-", status):
                answer = await floor.ask(wire, verb, still)
                assert await floor.status(still) == status, where
            else:
                job_id = await ready()
                answer = await floor.ask(wire, verb, job_id)
                await floor.reaches(job_id, final or answered)
                await check_checkpoint(floor, job_id, status, final or answered)
            if answered == "-":
                assert f"job {still} is {status}: " in answer.refusal, where
                assert answer.code == REFUSED[wire], where
            else:
                assert answer.status == answered, where


async def check_checkpoint(floor: Floor, job_id: str, status: str, final: str) -> None:
    """A job that ran pauses at a checkpoint, one that did not without; it goes on from there."""
    if final == "paused":
        expected = f"{job_id}@5" if status == "running" else ""
        assert (await floor.get(job_id)).latest_checkpoint_id == expected
    if final == "configuring":
        run = await floor.run_of(job_id, attempt=2)
        assert run.request.checkpoint_uri.endswith("checkpoint-000005")


async def check_loss(floor: Floor, status: str, becomes: str) -> None:
    """The run's process dies; a job that had come to step 5 has a checkpoint."""
    job_id = await floor.create()
    await bring_to(floor, job_id, status)
    run = await floor.run_of(job_id)
    if status != "configuring":
        run.checkpoint(5)
    run.fail("process_died")
    if becomes == "queued":
        again = await floor.run_of(job_id, attempt=2)
        expected = "" if status == "configuring" else "checkpoint-000005"
        assert again.request.checkpoint_uri.rpartition("/")[2] == expected
    else:
        await floor.reaches(job_id, becomes)


async def check_loss_before_the_start(floor: Floor) -> None:
    """The trainer refuses the run: the job is queued for another one."""

    def refuse_first(request: trainer_pb.StartRunRequest) -> None:
        if request.attempt == 1:
            raise FailedPreconditionError("it goes down", reason="SHUTTING_DOWN")

    floor.trainer.before_start = refuse_first
    job_id = await floor.create()
    assert (await floor.run_of(job_id, attempt=2)).request.checkpoint_uri == ""


async def test_every_cell_of_the_table_on_every_wire(floor: Floor) -> None:
    async with asyncio.timeout(110):
        await check_row(floor, "queued", floor.create)

        starts = asyncio.Event()
        floor.trainer.before_start = lambda request: starts.wait()
        await floor.trainer.start()

        async def provisioning() -> str:
            job_id = await floor.create()
            await floor.reaches(job_id, "provisioning")
            return job_id

        await check_row(floor, "provisioning", provisioning)
        starts.set()
        for status in ROWS:
            if status in ("queued", "provisioning"):
                continue

            async def ready(status: str = status) -> str:
                job_id = await floor.create()
                await bring_to(floor, job_id, status)
                return job_id

            await check_row(floor, status, ready)

        for status, becomes in LOSSES.items():
            await check_loss(floor, status, becomes)
        await check_loss_before_the_start(floor)
