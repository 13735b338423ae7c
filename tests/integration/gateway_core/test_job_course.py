"""The course of jobs on a trainer: what a run's journal says is what the gateway shows, once."""

from __future__ import annotations

import json
import math
from itertools import pairwise

import pytest
from gateway_room import Room, eventually, job_spec, reached, run_of, shown, started_run, told

from gateway.events import AttemptStarted, CheckpointSaved, LogLine, StatusChanged, StepMetrics
from plaudit.errors import FailedPreconditionError
from plaudit.trainer.v1 import trainer_service_pb2 as pb
from plaudit.types.jobs import RunSpec
from plaudit.types.statuses import JobStatus


async def test_a_job_from_queue_to_completed(room: Room) -> None:
    trainer = await room.add_trainer()
    gateway = await room.open()
    job_id, run = await started_run(room)
    spec = RunSpec.model_validate_json(run.request.spec_json)
    assert spec.hyperparameters.rollouts_per_prompt == 8
    assert spec.rewards[0].addresses == ("127.0.0.1:1",)
    assert (room.folder / "artifacts" / spec.dataset.uri).is_file()
    assert run.request.checkpoint_uri == ""
    await room.wait_for_status(job_id, "configuring")

    run.change(pb.RUN_STATE_RUNNING)
    run.step(1, total=3, reward_mean=0.25, loss=math.nan)
    run.step(2, total=3, reward_mean=0.5, grad_norm=math.inf)
    run.checkpoint(2)
    run.write(
        log_line=pb.LogLine(record_json=json.dumps({"level": "warning", "event": "slow", "seconds": 3}))
    )
    await room.wait_for_status(job_id, "running")
    await eventually("the checkpoint", lambda: shown(room, job_id, "latest_checkpoint_id"))
    run.step(3, total=3, reward_mean=0.75)
    run.change(pb.RUN_STATE_COMPLETED)
    await room.wait_for_status(job_id, "completed")

    job = await gateway.jobs.get(job_id)
    assert (job.current_step, job.total_steps, job.attempt) == (3, 3, 1)
    assert job.latest_checkpoint_id == f"{job_id}@2"
    assert job.metrics["reward_mean"] == 0.75
    assert math.isnan(job.metrics["loss"])
    assert job.started_at is not None
    assert job.finished_at is not None
    assert job.created_at < job.started_at < job.finished_at <= job.updated_at

    events = await room.events(job_id)
    assert all(a.number < b.number for a, b in pairwise(events))
    assert [e.payload.status for e in events if isinstance(e.payload, StatusChanged)] == [
        JobStatus.QUEUED,
        JobStatus.PROVISIONING,
        JobStatus.CONFIGURING,
        JobStatus.RUNNING,
        JobStatus.COMPLETED,
    ]
    assert [e.payload for e in events if isinstance(e.payload, AttemptStarted)] == [AttemptStarted(1, 0)]
    steps = [e.payload for e in events if isinstance(e.payload, StepMetrics)]
    assert [(s.step, s.attempt, s.total_steps) for s in steps] == [(1, 1, 3), (2, 1, 3), (3, 1, 3)]
    assert math.isnan(steps[0].values["loss"])
    assert [e.payload for e in events if isinstance(e.payload, CheckpointSaved)] == [
        CheckpointSaved(f"{job_id}@2", 2, 10)
    ]
    assert [e.payload for e in events if isinstance(e.payload, LogLine)] == [
        LogLine("warning", "slow", '{"seconds": 3}')
    ]

    series = await gateway.jobs.metrics(job_id)
    assert [dict(row.values) for row in series.rows][1:] == [
        {"reward_mean": 0.5, "grad_norm": math.inf},
        {"reward_mean": 0.75},
    ]
    assert math.isnan(series.rows[0].values["loss"])
    assert series.available_keys == ["grad_norm", "loss", "reward_mean"]
    assert series.latest_step == 3
    await eventually("the journal to be deleted", lambda: trainer.deleted == [run.request.run_id])


async def test_the_journal_is_kept_until_its_end_is_stored(room: Room) -> None:
    trainer = await room.add_trainer()
    await room.open()
    job_id, run = await started_run(room)
    run.change(pb.RUN_STATE_RUNNING)
    run.steps(1, 20)
    await eventually("step 20", lambda: shown(room, job_id, "current_step"))
    assert trainer.deleted == []
    await room.close()
    run.steps(21, 40)
    run.change(pb.RUN_STATE_COMPLETED)
    gateway = await room.open()
    await room.wait_for_status(job_id, "completed")
    await eventually("the deletion", lambda: trainer.deleted)
    rows = (await gateway.jobs.metrics(job_id)).rows
    assert [row.step for row in rows] == list(range(1, 41))
    steps = [e.payload.step for e in await room.events(job_id) if isinstance(e.payload, StepMetrics)]
    assert steps == list(range(1, 41))


async def test_pause_and_resume_from_the_checkpoint(room: Room) -> None:
    await room.add_trainer()
    gateway = await room.open()
    job_id, run = await started_run(room)
    run.change(pb.RUN_STATE_RUNNING)
    run.steps(1, 4)
    run.on_pause = lambda: run.change(pb.RUN_STATE_PAUSING)
    await eventually("step 4", lambda: reached(room, job_id, 4))
    assert (await gateway.jobs.pause(job_id)).status is JobStatus.PAUSING
    await eventually("the pause to be asked", lambda: run.pauses)
    assert (await gateway.jobs.pause(job_id)).status is JobStatus.PAUSING
    run.steps(5, 6)
    run.checkpoint(6)
    run.change(pb.RUN_STATE_PAUSED)
    await room.wait_for_status(job_id, "paused")
    job = await gateway.jobs.get(job_id)
    assert (job.latest_checkpoint_id, job.finished_at) == (f"{job_id}@6", None)
    assert run.pauses == 1

    assert (await gateway.jobs.resume(job_id)).status is JobStatus.QUEUED
    again = await run_of(room, job_id, attempt=2)
    assert again.request.checkpoint_uri == run.checkpoint_uri(6)
    assert (await gateway.jobs.get(job_id)).current_step == 6
    again.change(pb.RUN_STATE_RUNNING)
    again.steps(7, 8)
    again.change(pb.RUN_STATE_COMPLETED)
    await room.wait_for_status(job_id, "completed")
    rows = (await gateway.jobs.metrics(job_id)).rows
    assert [(row.step, row.attempt) for row in rows] == [
        *((step, 1) for step in range(1, 7)),
        (7, 2),
        (8, 2),
    ]


async def test_a_run_that_pauses_by_itself_says_why(room: Room) -> None:
    await room.add_trainer()
    gateway = await room.open()
    job_id, run = await started_run(room)
    run.change(pb.RUN_STATE_RUNNING)
    run.change(pb.RUN_STATE_PAUSING)
    run.change(pb.RUN_STATE_PAUSED, reason="judge budget spent")
    await room.wait_for_status(job_id, "paused")
    assert (await gateway.jobs.get(job_id)).status_detail == "judge budget spent"


async def test_cancel_beats_pause_and_lasts_until_the_process_is_gone(room: Room) -> None:
    await room.add_trainer()
    gateway = await room.open()
    job_id, run = await started_run(room)
    run.change(pb.RUN_STATE_RUNNING)
    run.on_pause = lambda: run.change(pb.RUN_STATE_PAUSING)
    run.on_cancel = lambda: run.change(pb.RUN_STATE_CANCELLING)
    await room.wait_for_status(job_id, "running")
    await gateway.jobs.pause(job_id)
    await eventually("the pause", lambda: run.pauses)
    assert (await gateway.jobs.cancel(job_id)).status is JobStatus.CANCELLING
    await eventually("the cancel", lambda: run.cancels)
    assert await room.status(job_id) == "cancelling"
    run.change(pb.RUN_STATE_CANCELLED)
    await room.wait_for_status(job_id, "cancelled")
    assert (await gateway.jobs.cancel(job_id)).status is JobStatus.CANCELLED


async def test_what_a_run_waits_for_is_told_and_does_not_flood(room: Room) -> None:
    await room.add_trainer()
    gateway = await room.open()
    job_id, run = await started_run(room)
    run.change(pb.RUN_STATE_RUNNING)
    await room.wait_for_status(job_id, "running")
    for seconds in range(40, 60):
        run.status_detail = f"reward server judge: 3 of 64 completions outstanding for {seconds} s"
        await eventually("the detail", lambda: told(room, job_id, run.status_detail))
    run.status_detail = ""
    await eventually("no detail", lambda: told(room, job_id, ""))
    run.change(pb.RUN_STATE_COMPLETED)
    await room.wait_for_status(job_id, "completed")
    details = [e.payload.detail for e in await room.events(job_id) if isinstance(e.payload, StatusChanged)]
    assert [d for d in details if d] == ["reward server judge: 3 of 64 completions outstanding for 40 s"]
    assert (await gateway.jobs.get(job_id)).status_detail == ""


async def test_jobs_wait_for_a_free_place_oldest_first_and_say_so(room: Room) -> None:
    trainer = await room.add_trainer()
    gateway = await room.open()
    first_id, first = await started_run(room)
    second = await gateway.jobs.create(job_spec())
    third = await gateway.jobs.create(job_spec())
    await eventually(
        "why", lambda: told(room, second.id, f"waits for a free place on trainer {trainer.address}")
    )
    await eventually(
        "why", lambda: told(room, third.id, f"waits for a free place on trainer {trainer.address}")
    )
    assert [await room.status(job.id) for job in (second, third)] == ["queued", "queued"]
    first.change(pb.RUN_STATE_COMPLETED)
    run = await run_of(room, second.id)
    assert await room.status(third.id) == "queued"
    await gateway.jobs.cancel(third.id)
    run.change(pb.RUN_STATE_COMPLETED)
    await room.wait_for_status(second.id, "completed")
    assert [start.job_id for start in trainer.starts] == [first_id, second.id]
    assert await room.status(third.id) == "cancelled"


async def test_a_failure_that_would_be_there_again_is_not_tried_again_until_it_is_resumed(room: Room) -> None:
    await room.add_trainer()
    gateway = await room.open()
    job_id, run = await started_run(room)
    run.change(pb.RUN_STATE_RUNNING)
    run.steps(1, 3)
    run.checkpoint(2)
    run.fail("out_of_memory", "CUDA out of memory; halve micro_batch_size")
    await room.wait_for_status(job_id, "failed")
    job = await gateway.jobs.get(job_id)
    assert job.error is not None
    assert (job.error.code, job.error.message) == (
        "out_of_memory",
        "CUDA out of memory; halve micro_batch_size",
    )
    assert job.attempt == 1
    assert job.finished_at is not None
    await gateway.jobs.resume(job_id)
    again = await run_of(room, job_id, attempt=2)
    assert again.request.checkpoint_uri == run.checkpoint_uri(2)
    job = await gateway.jobs.get(job_id)
    assert (job.error, job.finished_at) == (None, None)
    again.change(pb.RUN_STATE_RUNNING)
    again.step(3)
    again.change(pb.RUN_STATE_COMPLETED)
    # A watcher from the start is not sent away by the failure that was followed by a resume.
    await room.wait_for_status(job_id, "completed")
    events = await room.events(job_id)
    assert [e.payload.step for e in events if isinstance(e.payload, StepMetrics)] == [1, 2, 3, 3]
    assert events[-1].payload == StatusChanged(JobStatus.COMPLETED)


async def test_a_job_of_which_the_dataset_is_gone_fails_with_the_way_out(room: Room) -> None:
    await room.add_trainer()
    gateway = await room.open()
    async with gateway.datasets.upload() as upload:
        await upload.write(b"".join(b'{"prompt": "%d"}\n' % n for n in range(8)))
        dataset = await upload.store("mine")
    job_id, run = await started_run(room, dataset_id="mine")
    with pytest.raises(FailedPreconditionError, match=job_id):
        await gateway.datasets.delete("mine")
    run.fail("dataset_error")
    await room.wait_for_status(job_id, "failed")
    await gateway.datasets.delete(dataset.id)
    await gateway.jobs.resume(job_id)
    await room.wait_for_status(job_id, "failed")
    job = await gateway.jobs.get(job_id)
    assert job.error is not None
    assert (job.error.code, job.attempt) == ("dataset_error", 1)
    assert "mine was deleted; upload it again" in job.error.message
