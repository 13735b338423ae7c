"""What a run tells of its preflight reaches the job, its watchers, and every edge."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest_asyncio
from gateway_room import Room, eventually, job_spec, run_of

from gateway.events import Alert
from gateway.rest._convert import job_object
from gateway.servicers._convert import job_to_proto
from plaudit.client._convert import job_from_proto
from plaudit.trainer.v1 import trainer_service_pb2 as pb
from plaudit.types.preflight import (
    PreflightFinding,
    PreflightReport,
    PreflightReward,
    PreflightSample,
)

REPORT = PreflightReport(
    prompt_count=8,
    completion_count=16,
    truncated_count=3,
    seconds=0.25,
    informative_group_fraction=0.31,
    rewards=(
        PreflightReward(
            name="exact_answer",
            scored_count=15,
            failed_count=1,
            mean=0.2,
            min=0.0,
            max=1.0,
            known_good_mean=1.0,
            seconds_per_step=0.01,
        ),
    ),
    findings=(
        PreflightFinding(
            kind="constant_reward",
            severity="critical",
            reward="exact_answer",
            seen="it gave 0 to all",
            advice="check its config",
            evidence={"value": 0.0},
        ),
        PreflightFinding(kind="truncated", severity="warning", seen="3 of 16", advice="raise it"),
    ),
    samples=(PreflightSample(prompt_text="2+2", completion_text="5", truncated=False, scores={"a": 0.0}),),
)


@pytest_asyncio.fixture
async def room(tmp_path: Path) -> AsyncIterator[Room]:
    room = Room(tmp_path)
    await room.add_trainer()
    await room.open()
    yield room
    await room.close()
    for trainer in room.trainers:
        await trainer.stop()


def finished(report_json: str) -> dict[str, Any]:
    return {"preflight_finished": pb.PreflightFinished(report_json=report_json)}


async def test_a_report_is_kept_with_the_job_and_told_as_alerts(room: Room) -> None:
    job = await room.gateway.jobs.create(job_spec(preflight="warn"))
    run = await run_of(room, job.id)
    assert '"preflight":"warn"' in run.request.spec_json.replace(" ", "")
    run.write(**finished(REPORT.model_dump_json()))
    run.fail("preflight_failed", "the preflight stopped the job")
    await room.wait_for_status(job.id, "failed")

    alerts = [e.payload for e in await room.events(job.id) if isinstance(e.payload, Alert)]
    assert alerts == [
        Alert("constant_reward", "critical", "it gave 0 to all; check its config", 0, {"value": 0.0}),
        Alert("truncated", "warning", "3 of 16; raise it", 0, {}),
    ]

    await room.close()
    await room.open()
    kept = await room.gateway.jobs.get(job.id)
    assert kept.preflight == REPORT
    assert (kept.error.code, kept.spec.preflight) == ("preflight_failed", "warn")

    over_grpc = job_from_proto(job_to_proto(kept))
    assert over_grpc.preflight == REPORT
    assert over_grpc.spec.preflight == "warn"
    over_rest = job_object(kept)
    assert over_rest.preflight_report == REPORT
    assert over_rest.preflight == "warn"


async def test_a_report_that_cannot_be_read_is_passed_over(room: Room) -> None:
    job = await room.gateway.jobs.create(job_spec())
    run = await run_of(room, job.id)
    run.write(**finished("{}"))
    run.write(**finished('{"seconds": "soon"}'))
    run.write(**finished("no JSON"))
    run.change(pb.RUN_STATE_COMPLETED)
    await room.wait_for_status(job.id, "completed")
    assert (await room.gateway.jobs.get(job.id)).preflight == PreflightReport()
    assert '"preflight":"stop"' in run.request.spec_json.replace(" ", "")


async def test_a_second_attempt_replaces_the_report(room: Room) -> None:
    job = await room.gateway.jobs.create(job_spec())
    first = await run_of(room, job.id)
    first.write(**finished(REPORT.model_dump_json()))
    first.fail("preflight_failed")
    await room.wait_for_status(job.id, "failed")
    await room.gateway.jobs.resume(job.id)
    second = await run_of(room, job.id, attempt=2)
    second.write(**finished(PreflightReport(prompt_count=1).model_dump_json()))

    async def replaced() -> bool:
        return (await room.gateway.jobs.get(job.id)).preflight.prompt_count == 1

    await eventually("the new report", replaced)
    second.change(pb.RUN_STATE_COMPLETED)
    await room.wait_for_status(job.id, "completed")
