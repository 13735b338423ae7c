"""Runs that are being started: what overtakes a start, an answer that is lost, a trainer that refuses."""

from __future__ import annotations

import asyncio

from gateway_room import Room, eventually, job_spec, run_of, shown
from scripted_trainer import ScriptedRun

from plaudit.errors import InvalidArgumentError
from plaudit.trainer.v1 import trainer_service_pb2 as pb
from plaudit.types.statuses import JobStatus


async def test_a_cancel_overtakes_a_start_and_nothing_starts(room: Room) -> None:
    trainer = await room.add_trainer()
    gateway = await room.open()

    async def is_away() -> None:
        await asyncio.sleep(0.2)
        raise asyncio.CancelledError

    trainer.before_start = lambda request: is_away()
    job = await gateway.jobs.create(job_spec())
    await eventually("a start that is not answered", lambda: trainer.starts)
    assert await room.status(job.id) == "provisioning"
    await gateway.jobs.cancel(job.id)
    await room.wait_for_status(job.id, "cancelled")
    run_id = trainer.starts[0].run_id
    assert trainer.tombstones == [run_id]
    trainer.before_start = lambda request: None
    stub_answer = None
    try:
        await trainer.StartRun(trainer.starts[0], None)
    except Exception as error:
        stub_answer = getattr(error, "reason", None)
    assert stub_answer == "RUN_CANCELLED"
    assert trainer.runs == {}


async def test_a_pause_overtakes_a_start_and_the_job_is_paused_without_a_checkpoint(room: Room) -> None:
    trainer = await room.add_trainer()
    gateway = await room.open()
    answer = asyncio.Event()
    trainer.before_start = lambda request: answer.wait()
    job = await gateway.jobs.create(job_spec())
    await eventually("a start that is not answered", lambda: trainer.starts)
    assert (await gateway.jobs.pause(job.id)).status is JobStatus.PAUSING
    await room.wait_for_status(job.id, "paused")
    answer.set()
    await asyncio.sleep(0.1)
    assert trainer.runs == {}
    await gateway.jobs.resume(job.id)
    run = await run_of(room, job.id, attempt=2)
    assert run.request.checkpoint_uri == ""


async def test_a_start_whose_answer_was_lost_is_repeated_and_starts_one_run(room: Room) -> None:
    trainer = await room.add_trainer()
    gateway = await room.open()
    answer = asyncio.Event()
    trainer.before_start = lambda request: answer.wait()
    job = await gateway.jobs.create(job_spec())
    await eventually("a start that is not answered", lambda: trainer.starts)
    await room.close()
    # It arrives all the same, and there is nobody left to be answered.
    trainer.runs[trainer.starts[0].run_id] = ScriptedRun(trainer.starts[0])
    answer.set()
    gateway = await room.open()
    await room.wait_for_status(job.id, "configuring")
    assert len(trainer.starts) >= 2
    assert {start.run_id for start in trainer.starts} == set(trainer.runs)
    assert (await gateway.jobs.get(job.id)).attempt == 1


async def test_a_trainer_that_refuses_the_spec_fails_the_job_with_its_words(room: Room) -> None:
    trainer = await room.add_trainer()
    gateway = await room.open()

    def refuse(request: pb.StartRunRequest) -> None:
        raise InvalidArgumentError.of("spec_json.dataset.uri", "there is no such file")

    trainer.before_start = refuse
    job = await gateway.jobs.create(job_spec())
    await room.wait_for_status(job.id, "failed")
    failed = await gateway.jobs.get(job.id)
    assert failed.error is not None
    assert failed.error.code == "config_error"
    assert "spec_json.dataset.uri: there is no such file" in failed.error.message
    assert trainer.address in failed.error.message


async def trainer_answers(room: Room) -> bool:
    assert room.gateway is not None
    job = await room.gateway.jobs.create(job_spec())
    detail = (await room.gateway.jobs.cancel(job.id)).status_detail
    return "no trainer" not in detail


async def test_a_full_trainer_is_waited_for(room: Room) -> None:
    """Another gateway's run takes the place between the question and the start."""
    trainer = await room.add_trainer()
    gateway = await room.open()
    await eventually("contact", lambda: trainer_answers(room))

    def fill(request: pb.StartRunRequest) -> None:
        if request.job_id != "job_elsewhere" and not trainer.runs:
            foreign = pb.StartRunRequest(run_id="run_elsewhere", job_id="job_elsewhere", attempt=1)
            trainer.runs["run_elsewhere"] = ScriptedRun(foreign)

    trainer.before_start = fill
    job = await gateway.jobs.create(job_spec())

    async def says_so() -> bool:
        detail = await shown(room, job.id, "status_detail")
        return f"trainer {trainer.address} cannot start it yet: no place is free" in detail

    await eventually("the reason", says_so)
    assert await room.status(job.id) == "provisioning"
    # A run of a job that this store does not know is another gateway's, and left alone.
    asked = trainer.lists
    await eventually("more polls", lambda: trainer.lists > asked + 3)
    assert trainer.runs["run_elsewhere"].cancels == 0
    trainer.before_start = lambda request: None
    trainer.runs.clear()
    run = await run_of(room, job.id)
    run.change(pb.RUN_STATE_COMPLETED)
    await room.wait_for_status(job.id, "completed")
    assert (await gateway.jobs.get(job.id)).attempt == 1
