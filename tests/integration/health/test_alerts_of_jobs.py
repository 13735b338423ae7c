"""Alerts from a run's journal to the job, its watchers and its pause, over restarts and new attempts."""

from __future__ import annotations

import json
import math
from typing import Any

from gateway_room import Room, eventually, reached, run_of, shown, started_run
from scripted_trainer import ScriptedRun

from gateway.events import Alert, LogLine, StatusChanged
from gateway.rest._convert import job_object
from gateway.servicers._convert import job_to_proto
from plaudit.client._convert import job_from_proto
from plaudit.trainer.v1 import trainer_service_pb2 as pb

GOOD = {
    "reward_mean": 0.5, "reward_std_batch": 0.5, "zero_std_group_fraction": 0.1, "policy_entropy": 1.0,
    "loss": 0.1, "grad_norm": 0.2, "step_not_finite": 0.0, "reward/exact_answer/failed_fraction": 0.0,
}  # fmt: skip
NOT_FINITE = {**GOOD, "loss": math.nan, "grad_norm": math.nan, "step_not_finite": 1.0}
FAILED = {**GOOD, "reward/exact_answer/failed_fraction": 1.0}


def pauses_at_the_boundary(run: ScriptedRun, step: int) -> None:
    """Has the run do as trainers do when they are asked to pause."""

    def pause() -> None:
        if not run.is_over:
            run.checkpoint(step)
            run.change(pb.RUN_STATE_PAUSED, "asked to pause")

    run.on_pause = pause


async def running(room: Room, **changes: Any) -> tuple[str, ScriptedRun]:
    await room.add_trainer()
    await room.open()
    job_id, run = await started_run(room, **changes)
    run.change(pb.RUN_STATE_RUNNING)
    return job_id, run


async def alerts(room: Room, job_id: str) -> list[tuple[str, str, int]]:
    assert room.gateway is not None
    events = await room.gateway.events.newest(job_id, kinds=["alert"], limit=100)
    return [(a.kind, a.severity, a.step) for e in reversed(events) if isinstance(a := e.payload, Alert)]


async def test_an_alert_is_kept_with_the_job_and_told_once(room: Room) -> None:
    job_id, run = await running(room)
    run.steps(1, 6, **GOOD)
    run.step(7, **NOT_FINITE)
    run.steps(8, 12, **GOOD)
    await eventually("step 12", lambda: reached(room, job_id, 12))
    await room.close()
    gateway = await room.open()
    run.steps(13, 30, **GOOD)
    run.change(pb.RUN_STATE_COMPLETED)
    await room.wait_for_status(job_id, "completed")

    assert await alerts(room, job_id) == [("non_finite", "warning", 7)]
    events = await room.events(job_id)
    (alert,) = [e.payload for e in events if isinstance(e.payload, Alert)]
    assert alert.message.startswith(
        "step 7 was skipped because the loss, the gradient or a logit was not finite;"
    )
    assert "lower learning_rate" in alert.message
    assert alert.evidence == {"skipped_steps": 1.0, "last_skipped_step": 7.0}
    over = [e.payload.message for e in events if isinstance(e.payload, LogLine)]
    assert over == ["the alert non_finite is over: the metrics up to step 27 show it no more"]

    job = await gateway.jobs.get(job_id)
    (kept,) = job.alerts
    assert (kept.kind, kept.subject, kept.severity, kept.step, kept.ended_step) == (
        "non_finite", "", "warning", 7, 27,
    )  # fmt: skip
    over_grpc = job_from_proto(job_to_proto(job)).alerts
    assert [(a.kind, a.message, dict(a.evidence), a.ended_step, a.raised_at) for a in over_grpc] == [
        ("non_finite", kept.message, dict(kept.evidence), 27, kept.raised_at)
    ]
    (over_rest,) = job_object(job).model_dump(mode="json")["alerts"]
    assert (over_rest["kind"], over_rest["step"], over_rest["ended_step"]) == ("non_finite", 7, 27)


async def test_an_alert_that_becomes_worse_is_told_again_and_kept_as_one(room: Room) -> None:
    job_id, run = await running(room)
    run.steps(1, 10, **{**GOOD, "reward/exact_answer/failed_fraction": 0.2})
    run.step(11, **FAILED)
    run.change(pb.RUN_STATE_COMPLETED)
    await room.wait_for_status(job_id, "completed")
    assert await alerts(room, job_id) == [
        ("reward_failures", "warning", 5),
        ("reward_failures", "critical", 11),
    ]
    (kept,) = await shown(room, job_id, "alerts")
    assert (kept.severity, kept.step, kept.subject, kept.ended_step) == ("critical", 11, "exact_answer", None)


async def test_stop_on_pauses_and_says_why_and_a_resume_goes_on(room: Room) -> None:
    job_id, run = await running(room, hyperparameters={"stop_on": ["reward_failures", "kl_blowup"]})
    pauses_at_the_boundary(run, 5)
    run.steps(1, 3, **GOOD)
    run.step(4, **FAILED)
    await room.wait_for_status(job_id, "paused")
    assert run.pauses >= 1
    detail = await shown(room, job_id, "status_detail")
    assert detail.startswith(
        "stopped on reward_failures at step 4: reward exact_answer failed on 100% of the completions of step"
    )

    assert room.gateway is not None
    await room.gateway.jobs.resume(job_id)
    second = await run_of(room, job_id, attempt=2)
    assert second.request.checkpoint_uri == run.checkpoint_uri(5)
    second.change(pb.RUN_STATE_RUNNING)
    assert await shown(room, job_id, "status_detail") == ""
    # The same episode: it goes on, is told no more, and stops nothing.
    second.steps(6, 8, **FAILED)
    second.steps(9, 13, **GOOD)
    await eventually("step 13", lambda: reached(room, job_id, 13))
    assert second.pauses == 0
    assert await room.status(job_id) == "running"
    # It was over at step 13, so that this is another one.
    pauses_at_the_boundary(second, 15)
    second.step(14, **FAILED)
    await room.wait_for_status(job_id, "paused")
    assert second.pauses >= 1
    assert await alerts(room, job_id) == [
        ("reward_failures", "critical", 4),
        ("reward_failures", "critical", 14),
    ]


async def test_only_what_stop_on_names_stops(room: Room) -> None:
    job_id, run = await running(room, hyperparameters={"stop_on": ["kl_blowup"]})
    run.steps(1, 3, **FAILED)
    run.change(pb.RUN_STATE_COMPLETED)
    await room.wait_for_status(job_id, "completed")
    assert run.pauses == 0
    assert [kind for kind, *_ in await alerts(room, job_id)] == ["reward_failures"]


async def test_a_gateway_that_dies_between_alert_and_pause_asks_again(room: Room) -> None:
    job_id, run = await running(room, hyperparameters={"stop_on": ["non_finite"]})
    # A trainer in the middle of a long step: it notes the request, and does not get to it.
    run.steps(1, 4, **GOOD)
    run.step(5, **NOT_FINITE)
    await room.wait_for_status(job_id, "pausing")
    await room.close()
    pauses_at_the_boundary(run, 6)
    run.step(6, **GOOD)
    run.pauses = 0
    await room.open()
    await room.wait_for_status(job_id, "paused")
    assert run.pauses >= 1
    assert (await shown(room, job_id, "status_detail")).startswith(
        "stopped on non_finite at step 5: step 5 was"
    )
    assert await alerts(room, job_id) == [("non_finite", "warning", 5)]


async def test_why_it_stops_stays_told_while_it_pauses(room: Room) -> None:
    job_id, run = await running(room, hyperparameters={"stop_on": ["non_finite"]})
    run.step(1, **NOT_FINITE)
    await room.wait_for_status(job_id, "pausing")
    run.status_detail = "asked to pause"
    lists = room.trainers[0].lists
    await eventually("two more polls", lambda: room.trainers[0].lists >= lists + 2)
    assert (await shown(room, job_id, "status_detail")).startswith("stopped on non_finite at step 1")
    run.change(pb.RUN_STATE_COMPLETED)
    await room.wait_for_status(job_id, "completed")
    assert await shown(room, job_id, "status_detail") == ""
    changes = [e.payload for e in await room.events(job_id) if isinstance(e.payload, StatusChanged)]
    assert [str(c.status) for c in changes][-3:] == ["running", "pausing", "completed"]


async def test_a_run_that_dies_while_it_is_stopped_leaves_both_reasons(room: Room) -> None:
    job_id, run = await running(room, hyperparameters={"stop_on": ["non_finite"]})
    run.step(1, **NOT_FINITE)
    await room.wait_for_status(job_id, "pausing")
    run.fail("process_died", "it was killed")
    await room.wait_for_status(job_id, "paused")
    detail = await shown(room, job_id, "status_detail")
    assert detail.startswith("stopped on non_finite at step 1")
    assert detail.endswith("; it was killed")


async def test_what_an_attempt_did_beyond_the_next_ones_start_is_not_judged(room: Room) -> None:
    job_id, run = await running(room)
    run.steps(1, 4, **GOOD)
    run.checkpoint(4)
    run.step(5, **NOT_FINITE)
    run.step(6, **NOT_FINITE)
    run.fail("process_died")
    second = await run_of(room, job_id, attempt=2)
    second.change(pb.RUN_STATE_RUNNING)
    second.step(5, **GOOD)
    second.step(6, **NOT_FINITE)
    second.change(pb.RUN_STATE_COMPLETED)
    await room.wait_for_status(job_id, "completed")
    # Of the second attempt's line one step was not finite, and not three.
    assert await alerts(room, job_id) == [("non_finite", "warning", 5), ("non_finite", "warning", 6)]
    assert [a.ended_step for a in await shown(room, job_id, "alerts")] == [None, 5]


async def test_sft_is_judged_for_numbers_alone(room: Room) -> None:
    await room.add_trainer()
    gateway = await room.open()
    async with gateway.datasets.upload() as upload:
        for n in range(8):
            turns = [{"role": "user", "content": f"{n}?"}, {"role": "assistant", "content": "yes"}]
            await upload.write(json.dumps({"messages": turns}).encode() + b"\n")
        dataset = await upload.store("chats")
    job = await gateway.jobs.create(
        {
            "base_model": "builtin:tiny",
            "output_name": "chatter",
            "method": "sft",
            "dataset_id": dataset.id,
            "hyperparameters": {"global_batch_size": 8},
        }
    )
    run = await run_of(room, job.id)
    run.change(pb.RUN_STATE_RUNNING)
    run.steps(1, 40, loss=1.0, grad_norm=0.1, step_not_finite=0.0)
    run.step(41, loss=math.nan, grad_norm=math.nan, step_not_finite=1.0)
    run.change(pb.RUN_STATE_COMPLETED)
    await room.wait_for_status(job.id, "completed")
    assert await alerts(room, job.id) == [("non_finite", "warning", 41)]
