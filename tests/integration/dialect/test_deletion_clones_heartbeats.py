"""Jobs that are deleted, cloned, and cancelled because nobody owns them any more."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest
from dialect_jobs import OTHER_SOURCE, SOURCE, created, end, refused
from edges import Edges, open_edges

from gateway.jobs import lifecycle
from gateway.jobs.heartbeats import HeartbeatWatch
from gateway.jobs.service import JobService
from plaudit.gateway.v1 import training_job_service_pb2 as pb
from plaudit.types.statuses import JobStatus, RunState


def some_files(edges: Edges, job_id: str) -> Path:
    """The job's folder, with a file in it."""
    folder = edges.artifact_root / "jobs" / job_id
    (folder / "attempt-1").mkdir(parents=True)
    (folder / "attempt-1" / "weights").write_text("heavy")
    return folder


async def test_only_a_job_that_is_over_is_deleted_with_its_files(edges: Edges) -> None:
    job = await created(edges, reward_source=SOURCE)
    folder = some_files(edges, job["id"])
    path = f"/v1/training_jobs/{job['id']}"
    answer = await edges.http.delete(path)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "STATUS_FORBIDS")
    assert "is queued" in answer.json()["error"]["message"]
    assert folder.exists()
    await end(edges, job["id"])
    answer = await edges.http.delete(path)
    assert answer.json() == {"id": job["id"], "object": "training_job", "deleted": True}
    assert not folder.exists()
    for answer in (await edges.http.get(path), await edges.http.delete(path)):
        assert answer.status_code == 404
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await edges.jobs.DeleteTrainingJob(pb.DeleteTrainingJobRequest(id=job["id"]))
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND


async def test_a_removal_that_was_cut_short_is_finished_at_the_next_start(
    edges: Edges, tmp_path: Path
) -> None:
    job = await created(edges, reward_source=SOURCE)
    folder = some_files(edges, job["id"])
    await end(edges, job["id"])
    # As where the gateway is killed between the commit and the removal of the files.
    async with edges.store.transaction() as session:
        record = await session.jobs.find(job["id"])
        assert record is not None
        await session.removals.add([f"jobs/{job['id']}"])
        await session.jobs.delete(record.key)
    assert folder.exists()
    again = JobService(edges.store, None, None, edges.artifact_root, on_change=lambda: None)  # type: ignore[arg-type]
    await again.finish_deletions()
    assert not folder.exists()
    async with edges.store.snapshot() as session:
        assert await session.removals.list() == []


async def test_a_run_that_its_trainer_still_has_is_remembered_until_it_is_gone(edges: Edges) -> None:
    job = await created(edges, reward_source=SOURCE)
    async with edges.store.transaction() as session:
        record = await session.jobs.find(job["id"])
        assert record is not None
        await session.runs.insert(
            "run_lost",
            job_key=record.key,
            attempt=1,
            trainer_id="trainer_1",
            from_step=0,
            checkpoint_uri="",
            spec_json="{}",
            created_at=record.job.created_at,
        )
    await end(edges, job["id"])
    await edges.jobs.DeleteTrainingJob(pb.DeleteTrainingJobRequest(id=job["id"]))
    async with edges.store.snapshot() as session:
        assert await session.removals.runs("trainer_1") == ["run_lost"]
        assert await session.removals.runs("trainer_2") == []


async def test_a_clone_is_the_same_job_but_for_what_is_other(edges: Edges) -> None:
    job = await created(
        edges, reward_source=SOURCE, hyperparameters={"max_steps": 4, "seed": 7}, preflight="warn"
    )
    path = f"/v1/training_jobs/{job['id']}/clone"
    plain = (await edges.http.post(path)).json()
    for name in ("base_model", "dataset_id", "output_name", "hyperparameters", "rewards", "preflight"):
        assert plain[name] == job[name]
    assert plain["id"] != job["id"]
    changed = await edges.http.post(
        path,
        json={
            "output_name": "another",
            "hyperparameters": {"max_steps": 9, "seed": None},
            "reward_sources": [SOURCE, OTHER_SOURCE],
            "gpu": {"gpu_type": "L4", "gpu_count": 1},
        },
    )
    clone = changed.json()
    assert (clone["output_name"], clone["reward_count"], clone["preflight"]) == ("another", 2, "warn")
    assert clone["hyperparameters"] == {**job["hyperparameters"], "max_steps": 9, "seed": 42}
    assert clone["gpu_requested"] == {"type": "L4", "count": 1}
    made = await edges.jobs.CloneTrainingJob(
        pb.CloneTrainingJobRequest(id=job["id"], overrides_json='{"hyperparameters": {"seed": 8}}')
    )
    assert json.loads(made.spec.hyperparameters_json) == {**job["hyperparameters"], "seed": 8}


async def test_a_clone_is_checked_like_a_job(edges: Edges) -> None:
    job = await created(edges, reward_source=SOURCE)
    path = f"/v1/training_jobs/{job['id']}/clone"
    wrong: dict[str, Any] = {"hyperparameters": {"seed": "x", "sed": 1}, "outputname": "y"}
    answer = await edges.http.post(path, json=wrong)
    assert answer.status_code == 422
    told = {e["param"]: e["message"] for e in answer.json()["error"]["errors"]}
    assert told == await refused(edges, {"reward_source": SOURCE, **wrong})
    assert (await edges.http.post("/v1/training_jobs/job_none/clone")).status_code == 404
    checked = await edges.http.post(f"{path}?validate_only=true")
    assert checked.json()["id"] == ""
    keyed = [await edges.http.post(path, headers={"Idempotency-Key": "c"}) for _ in range(2)]
    assert keyed[0].json()["id"] == keyed[1].json()["id"] != job["id"]
    reused = await edges.http.post(path, json={"output_name": "z"}, headers={"Idempotency-Key": "c"})
    assert reused.status_code == 409


async def test_a_job_waits_for_heartbeats_only_after_the_first(edges: Edges) -> None:
    changes: list[bool] = []
    watch = HeartbeatWatch(edges.store, on_change=lambda: changes.append(True), timeout_seconds=300)
    now = datetime.now(UTC)
    never = await created(edges, reward_source=SOURCE, requires_heartbeat=True)
    beating = await created(edges, reward_source=SOURCE, requires_heartbeat=True)
    free = await created(edges, reward_source=SOURCE)
    for job in (beating, free):
        answer = await edges.http.post(f"/v1/training_jobs/{job['id']}/heartbeat", json={})
        assert (answer.status_code, answer.json()["id"]) == (200, job["id"])
    made = await edges.jobs.HeartbeatTrainingJob(pb.HeartbeatTrainingJobRequest(id=beating["id"]))
    assert made.requires_heartbeat
    # Not listened for long enough, and then not silent for long enough.
    await watch.check(now + timedelta(seconds=200))
    await watch.check(now + timedelta(seconds=299))
    assert not changes
    await watch.check(now + timedelta(seconds=400))
    assert changes
    shown = {
        job["id"]: (await edges.http.get(f"/v1/training_jobs/{job['id']}")).json()
        for job in (never, beating, free)
    }
    assert [shown[job["id"]]["status"] for job in (never, beating, free)] == ["queued", "cancelled", "queued"]
    assert shown[beating["id"]]["error"]["code"] == "heartbeat_timeout"
    assert "300 s" in shown[beating["id"]]["error"]["message"]
    assert (await edges.http.post("/v1/training_jobs/job_none/heartbeat")).status_code == 404


async def test_a_running_job_keeps_the_cause_until_it_is_cancelled(edges: Edges) -> None:
    watch = HeartbeatWatch(edges.store, on_change=lambda: None, timeout_seconds=300)
    job = await created(edges, reward_source=SOURCE, requires_heartbeat=True)
    await edges.http.post(f"/v1/training_jobs/{job['id']}/heartbeat")
    async with edges.store.transaction() as session:
        record = await session.jobs.find(job["id"])
        assert record is not None
        await session.jobs.save(
            replace(record, run_id="run_1", job=replace(record.job, status=JobStatus.RUNNING))
        )
    later = datetime.now(UTC) + timedelta(seconds=301)
    await watch.check(later)
    await watch.check(later)
    async with edges.store.transaction() as session:
        record = await session.jobs.find(job["id"])
        assert record is not None
        assert record.job.status is JobStatus.CANCELLING
        await lifecycle.save(
            session, record, lifecycle.after_run_state(record, RunState.CANCELLED, later), later
        )
    shown = (await edges.http.get(f"/v1/training_jobs/{job['id']}")).json()
    assert (shown["status"], shown["error"]["code"]) == ("cancelled", "heartbeat_timeout")


async def test_idempotency_keys_outlive_the_gateway(tmp_path: Path) -> None:
    ids = []
    for _ in range(2):
        async with open_edges(tmp_path, configured={"builtin": ["127.0.0.1:1"]}) as edges:
            answer = await edges.http.post(
                "/v1/training_jobs",
                json={
                    "base_model": "builtin:tiny",
                    "dataset_id": "builtin:additions",
                    "output_name": "x",
                    "reward_source": SOURCE,
                },
                headers={"Idempotency-Key": "k"},
            )
            ids.append(answer.json()["id"])
    assert ids[0] == ids[1]
