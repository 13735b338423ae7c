"""Runs that die, trainers that go away, and old attempts that come back."""

from __future__ import annotations

import asyncio
import re
import shutil
import time
from pathlib import Path

from gateway_room import Room, eventually, reached, run_of, shown, started_run, told
from scripted_trainer import ScriptedRun, ScriptedTrainer

from gateway.events import AttemptStarted, LogLine, StatusChanged, StepMetrics
from gateway.jobs.job import JobError
from plaudit.trainer.v1 import trainer_service_pb2 as pb
from plaudit.types.statuses import JobStatus


async def test_a_run_that_died_goes_on_from_the_newest_checkpoint_as_attempt_2(room: Room) -> None:
    await room.add_trainer()
    gateway = await room.open()
    job_id, run = await started_run(room)
    run.change(pb.RUN_STATE_RUNNING)
    run.steps(1, 7, reward_mean=0.1)
    run.steps(8, 8, reward_mean=0.9)
    run.checkpoint(2)
    run.checkpoint(4)
    run.remove_checkpoint(2)
    run.fail("process_died", "the trainer service was killed")
    again = await run_of(room, job_id, attempt=2)
    assert again.request.checkpoint_uri == run.checkpoint_uri(4)
    assert again.request.run_id != run.request.run_id
    # What the lost steps came to is not the job's any more.
    assert (await gateway.jobs.get(job_id)).metrics == {"reward_mean": 0.1}
    again.change(pb.RUN_STATE_RUNNING)
    again.steps(5, 6, reward_mean=0.2)
    again.change(pb.RUN_STATE_COMPLETED)
    await room.wait_for_status(job_id, "completed")
    rows = (await gateway.jobs.metrics(job_id)).rows
    # Steps 5 to 8 of attempt 1 are superseded: kept, and not on the line.
    assert [(r.step, r.attempt, r.values["reward_mean"]) for r in rows] == [
        *((step, 1, 0.1) for step in (1, 2, 3, 4)),
        *((step, 2, 0.2) for step in (5, 6)),
    ]
    events = await room.events(job_id)
    assert [e.payload for e in events if isinstance(e.payload, AttemptStarted)] == [
        AttemptStarted(1, 0),
        AttemptStarted(2, 4),
    ]
    queued = [e.payload for e in events if isinstance(e.payload, StatusChanged)]
    details = [s.detail for s in queued if s.status is JobStatus.QUEUED]
    assert details[:2] == ["", "attempt 1 was lost: the trainer service was killed"]
    job = await gateway.jobs.get(job_id)
    assert (job.current_step, job.attempt, job.latest_checkpoint_id) == (6, 2, f"{job_id}@4")


async def test_a_journal_that_cannot_be_taken_in_is_told_until_it_can(room: Room) -> None:
    await room.add_trainer()
    gateway = await room.open()
    job_id, run = await started_run(room)
    run.change(pb.RUN_STATE_RUNNING)
    run.step(1)
    await eventually("step 1", lambda: reached(room, job_id, 1))
    run.step(2)
    missing = run.journal.pop()
    run.journal.append(pb.StreamRunEventsResponse())
    run.step(3)
    run.journal.remove(pb.StreamRunEventsResponse())

    async def told_of() -> str:
        detail: str = await shown(room, job_id, "status_detail")
        return detail if "cannot be taken in" in detail else ""

    detail = await eventually("the job to tell of it", told_of)
    assert "goes from entry 3 to 5: entries are missing" in detail
    assert await room.status(job_id) == "running"
    # The entry turns up: what it was about is over, and nothing was lost.
    run.journal.insert(3, missing)
    run.change(pb.RUN_STATE_COMPLETED)
    await room.wait_for_status(job_id, "completed")
    assert [row.step for row in (await gateway.jobs.metrics(job_id)).rows] == [1, 2, 3]
    assert await shown(room, job_id, "status_detail") == ""
    lines = [e.payload.message for e in await room.events(job_id) if isinstance(e.payload, LogLine)]
    assert [line for line in lines if "cannot be taken in" in line] == [detail]


async def test_a_time_that_is_none_is_told_by_the_entry_that_has_it(room: Room) -> None:
    await room.add_trainer()
    await room.open()
    job_id, run = await started_run(room)
    run.change(pb.RUN_STATE_RUNNING)
    run.step(1)
    run.journal[-1].event_time.seconds = 2**62

    async def told_of() -> str:
        detail: str = await shown(room, job_id, "status_detail")
        return detail if "cannot be taken in" in detail else ""

    detail = await eventually("the job to tell of it", told_of)
    assert f"entry 3 of the trainer's journal has {2**62} s since 1970 as its time, which is none" in detail
    run.journal[-1].event_time.seconds = 1_800_000_000
    await eventually("step 1", lambda: reached(room, job_id, 1))


async def test_only_three_runs_are_started_in_place_of_dead_ones_without_a_new_checkpoint(room: Room) -> None:
    await room.add_trainer()
    gateway = await room.open()
    job_id, run = await started_run(room)
    run.fail("process_died")
    for attempt in (2, 3):
        run = await run_of(room, job_id, attempt)
        run.fail("process_died")
    run = await run_of(room, job_id, attempt=4)
    # A new checkpoint shows that it is worth it.
    run.change(pb.RUN_STATE_RUNNING)
    run.step(1)
    run.checkpoint(1)
    run.fail("process_died")
    for attempt in (5, 6):
        run = await run_of(room, job_id, attempt)
        run.fail("process_died")
    run = await run_of(room, job_id, attempt=7)
    run.fail("process_died", "killed by signal 9")
    await room.wait_for_status(job_id, "failed")
    job = await gateway.jobs.get(job_id)
    assert job.error is not None
    assert job.error.code == "process_died"
    assert job.error.message == "killed by signal 9; 4 runs in a row ended so without a new checkpoint"
    assert (await gateway.jobs.resume(job_id)).status is JobStatus.QUEUED
    (await run_of(room, job_id, attempt=8)).fail("process_died")
    await run_of(room, job_id, attempt=9)


async def test_a_silent_trainer_is_told_and_its_job_goes_on_when_it_is_back(room: Room) -> None:
    trainer = await room.add_trainer()
    gateway = await room.open()
    job_id, run = await started_run(room)
    run.change(pb.RUN_STATE_RUNNING)
    run.steps(1, 3)
    await eventually("step 3", lambda: reached(room, job_id, 3))
    await trainer.stop()
    pattern = rf"trainer {trainer.address} has not answered since \d\d:\d\d:\d\d UTC \(\d+ s\)"

    async def told_since_when() -> bool:
        return bool(re.fullmatch(pattern, await shown(room, job_id, "status_detail")))

    await eventually("the detail", told_since_when)
    assert await room.status(job_id) == "running"
    run.steps(4, 5)
    await trainer.start()
    await eventually("step 5", lambda: reached(room, job_id, 5))
    await eventually("no detail", lambda: told(room, job_id, ""))
    run.change(pb.RUN_STATE_COMPLETED)
    await room.wait_for_status(job_id, "completed")
    steps = [e.payload.step for e in await room.events(job_id) if isinstance(e.payload, StepMetrics)]
    assert steps == [1, 2, 3, 4, 5]
    assert (await gateway.jobs.get(job_id)).attempt == 1


async def test_an_old_attempt_that_comes_back_is_cancelled_and_moves_nothing(room: Room) -> None:
    old_trainer = await room.add_trainer()
    gateway = await room.open(trainer_lost_after_seconds=0.6)
    job_id, old = await started_run(room)
    old.change(pb.RUN_STATE_RUNNING)
    old.steps(1, 5, reward_mean=0.1)
    old.checkpoint(4)
    await eventually("step 5", lambda: reached(room, job_id, 5))
    await old_trainer.stop()
    await room.close()

    new_trainer = await room.add_trainer()
    gateway = await room.open(trainer_lost_after_seconds=0.6)
    new = await run_of(room, job_id, attempt=2, trainer=1)
    assert new.request.checkpoint_uri == old.checkpoint_uri(4)
    new.change(pb.RUN_STATE_RUNNING)
    new.steps(5, 6, reward_mean=0.2)
    await eventually("step 6", lambda: reached(room, job_id, 6))

    # Meanwhile the old one has gone far beyond, and would have more to say.
    old.steps(6, 30, reward_mean=0.9)
    old.checkpoint(30)
    old.on_cancel = lambda: (old.steps(31, 32, reward_mean=0.9), old.change(pb.RUN_STATE_CANCELLED))  # type: ignore[func-returns-value]
    await old_trainer.start()
    await eventually("its cancel", lambda: old.cancels == 1)
    await eventually("its deletion", lambda: old.request.run_id in old_trainer.deleted)

    job = await gateway.jobs.get(job_id)
    assert (job.status, job.attempt, job.current_step) == (JobStatus.RUNNING, 2, 6)
    assert job.latest_checkpoint_id == f"{job_id}@4"
    assert job.metrics["reward_mean"] == 0.2
    new.checkpoint(6)
    new.change(pb.RUN_STATE_COMPLETED)
    await room.wait_for_status(job_id, "completed")
    rows = (await gateway.jobs.metrics(job_id)).rows
    assert [(row.step, row.attempt) for row in rows] == [(1, 1), (2, 1), (3, 1), (4, 1), (5, 2), (6, 2)]
    assert (await gateway.jobs.get(job_id)).latest_checkpoint_id == f"{job_id}@6"
    seen = [
        (e.payload.step, e.payload.attempt)
        for e in await room.events(job_id)
        if isinstance(e.payload, StepMetrics)
    ]
    assert seen == [*((step, 1) for step in (1, 2, 3, 4, 5)), (5, 2), (6, 2)]
    assert len(new_trainer.starts) == 1


async def test_a_lost_trainer_pauses_what_pauses_and_cancels_what_is_cancelled(room: Room) -> None:
    trainer = await room.add_trainer(places=2)
    gateway = await room.open(trainer_lost_after_seconds=0.8)
    pausing, _ = await started_run(room)
    cancelling, _ = await started_run(room)
    await trainer.stop()
    await gateway.jobs.pause(pausing)
    await gateway.jobs.cancel(cancelling)
    assert [await room.status(job_id) for job_id in (pausing, cancelling)] == ["pausing", "cancelling"]
    await room.wait_for_status(pausing, "paused")
    await room.wait_for_status(cancelling, "cancelled")


async def test_an_unknown_run_of_a_known_job_is_cancelled(room: Room) -> None:
    """As after the store was restored from a backup that is older than the run."""
    trainer = await room.add_trainer(places=2)
    await room.open()
    job_id, run = await started_run(room)
    request = pb.StartRunRequest(run_id="run_of_later", job_id=job_id, attempt=7)
    later = trainer.runs["run_of_later"] = ScriptedRun(request)
    await eventually("its cancel", lambda: later.is_over)
    run.change(pb.RUN_STATE_RUNNING)
    run.step(1)
    run.change(pb.RUN_STATE_COMPLETED)
    await room.wait_for_status(job_id, "completed")
    assert await shown(room, job_id, "attempt") == 1


async def test_a_run_that_starts_while_the_trainer_is_asked_what_it_runs_is_not_taken_for_lost(
    room: Room,
) -> None:
    trainer = await room.add_trainer()
    trainer.list_seconds = 0.15
    await room.open()
    for _ in range(4):
        job_id, run = await started_run(room)
        await room.wait_for_status(job_id, "configuring")
        asked = trainer.lists
        await eventually("more polls", lambda asked=asked: trainer.lists > asked + 2)
        run.change(pb.RUN_STATE_COMPLETED)
        await room.wait_for_status(job_id, "completed")
        assert await shown(room, job_id, "attempt") == 1
    await eventually("the deletions", lambda: len(trainer.deleted) >= 4)
    # Nothing was asked twice on the strength of what had been read before it was done.
    assert len(trainer.starts) == len({start.run_id for start in trainer.starts}) == 4
    assert len(trainer.deleted) == len(set(trainer.deleted)) == 4


async def test_a_trainer_that_forgot_a_run_lost_it(room: Room) -> None:
    trainer = await room.add_trainer()
    gateway = await room.open()
    job_id, run = await started_run(room)
    run.change(pb.RUN_STATE_RUNNING)
    run.steps(1, 3)
    run.checkpoint(3)
    await eventually("step 3", lambda: reached(room, job_id, 3))
    trainer.runs.clear()
    again = await run_of(room, job_id, attempt=2)
    assert again.request.checkpoint_uri == run.checkpoint_uri(3)
    again.change(pb.RUN_STATE_RUNNING)
    await room.wait_for_status(job_id, "running")
    assert (await gateway.jobs.get(job_id)).attempt == 2


async def test_a_trainer_with_another_journal_of_a_run_lost_it(room: Room) -> None:
    """As after the trainer's disk was restored: fewer entries than are stored here."""
    trainer = await room.add_trainer()
    gateway = await room.open()
    job_id, run = await started_run(room)
    run.change(pb.RUN_STATE_RUNNING)
    run.steps(1, 3)
    run.checkpoint(3)
    await eventually("step 3", lambda: reached(room, job_id, 3))
    await trainer.stop()
    del run.journal[3:]
    await trainer.start()
    again = await run_of(room, job_id, attempt=2)
    assert again.request.checkpoint_uri == run.checkpoint_uri(3)
    await eventually("its deletion", lambda: run.request.run_id in trainer.deleted)
    assert run.cancels == 1
    again.change(pb.RUN_STATE_COMPLETED)
    await room.wait_for_status(job_id, "completed")
    rows = (await gateway.jobs.metrics(job_id)).rows
    assert [row.step for row in rows] == [1, 2, 3]


async def test_another_trainer_on_the_same_address_does_not_hold_the_runs_of_the_first(room: Room) -> None:
    trainer = await room.add_trainer()
    gateway = await room.open(trainer_lost_after_seconds=1.0)
    job_id, run = await started_run(room)
    run.change(pb.RUN_STATE_RUNNING)
    await room.wait_for_status(job_id, "running")
    await trainer.stop()
    other = ScriptedTrainer()
    other.port = trainer.port
    room.trainers[0] = other
    await other.start()
    again = await run_of(room, job_id, attempt=2)
    again.change(pb.RUN_STATE_COMPLETED)
    await room.wait_for_status(job_id, "completed")
    assert (await gateway.jobs.get(job_id)).attempt == 2


def checkpoint_files(room: Room, run: ScriptedRun, step: int) -> Path:
    folder = room.folder / "artifacts" / run.checkpoint_uri(step)
    folder.mkdir(parents=True)
    (folder / "manifest.json").write_text("{}")
    return folder


async def test_a_checkpoint_that_an_attempt_out_of_reach_removed_is_not_started_from(room: Room) -> None:
    old_trainer = await room.add_trainer()
    await room.open(trainer_lost_after_seconds=0.6)
    job_id, old = await started_run(room)
    old.change(pb.RUN_STATE_RUNNING)
    old.steps(1, 4)
    files = {}
    for step in (2, 3, 4):
        files[step] = checkpoint_files(room, old, step)
        old.checkpoint(step)
    await eventually("step 4", lambda: reached(room, job_id, 4))
    # It goes on where nobody hears of it, and keeps its newest checkpoints only.
    shutil.rmtree(files[4])
    new_trainer = await room.add_trainer(places=4)
    await room.close()
    await old_trainer.stop()
    gateway = await room.open(trainer_lost_after_seconds=0.6)
    new = await run_of(room, job_id, attempt=2, trainer=1)
    assert new.request.checkpoint_uri == old.checkpoint_uri(3)
    assert await shown(room, job_id, "current_step") == 3

    # This one is removed between the choice and the start of training: no fault of the job.
    shutil.rmtree(files[3])
    new.fail("model_error", "there is no checkpoint")
    third = await run_of(room, job_id, attempt=3, trainer=1)
    assert third.request.checkpoint_uri == old.checkpoint_uri(2)
    third.change(pb.RUN_STATE_RUNNING)
    third.steps(3, 3)
    await eventually("step 3", lambda: reached(room, job_id, 3))
    # Past its own first step a missing folder explains nothing.
    shutil.rmtree(files[2])
    third.fail("model_error", "it broke")
    await room.wait_for_status(job_id, "failed")
    assert (await gateway.jobs.get(job_id)).error == JobError("model_error", "it broke")
    await gateway.jobs.resume(job_id)
    fourth = await run_of(room, job_id, attempt=4, trainer=1)
    assert fourth.request.checkpoint_uri == ""
    assert new_trainer.newest() is fourth


async def test_an_artifact_root_that_is_not_reached_says_nothing_of_checkpoints(room: Room) -> None:
    await room.add_trainer()
    await room.open()
    job_id, run = await started_run(room)
    files = checkpoint_files(room, run, 2)
    run.steps(1, 2)
    run.checkpoint(2)
    shutil.rmtree(files.parent)
    run.fail("process_died")
    again = await run_of(room, job_id, attempt=2)
    assert again.request.checkpoint_uri == run.checkpoint_uri(2)


async def test_a_trainer_that_comes_back_with_an_empty_data_directory_is_told_from_the_one_before(
    room: Room,
) -> None:
    trainer = await room.add_trainer()
    gateway = await room.open(trainer_lost_after_seconds=2.0)
    job_id, run = await started_run(room)
    run.change(pb.RUN_STATE_RUNNING)
    run.step(1)
    await eventually("step 1", lambda: reached(room, job_id, 1))
    await trainer.stop()
    trainer.trainer_id, trainer.runs = "trainer_new", {}
    await trainer.start()
    taken = "; another one, with another data directory, answers on its address"

    async def says_so() -> bool:
        return taken in await shown(room, job_id, "status_detail")

    await eventually("what is on the address", says_so)
    again = await run_of(room, job_id, attempt=2)
    assert list(trainer.runs) == [again.request.run_id] != [run.request.run_id]
    again.change(pb.RUN_STATE_COMPLETED)
    await room.wait_for_status(job_id, "completed")
    assert (await gateway.jobs.get(job_id)).attempt == 2


async def test_a_gateway_that_was_stopped_itself_loses_no_trainer(
    room: Room,
) -> None:
    await room.add_trainer()
    gateway = await room.open(trainer_lost_after_seconds=1.5)
    job_id, run = await started_run(room)
    run.change(pb.RUN_STATE_RUNNING)
    run.step(1)
    await eventually("step 1", lambda: reached(room, job_id, 1))
    # As after SIGSTOP and SIGCONT: nothing of the gateway ran, and its clock went on.
    time.sleep(2.5)
    await asyncio.sleep(0.5)
    run.change(pb.RUN_STATE_COMPLETED)
    await room.wait_for_status(job_id, "completed")
    assert (await gateway.jobs.get(job_id)).attempt == 1
    details = [e.payload.detail for e in await room.events(job_id) if isinstance(e.payload, StatusChanged)]
    assert not any("has not answered" in detail for detail in details)
