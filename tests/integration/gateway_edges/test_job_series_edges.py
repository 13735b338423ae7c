"""What a job has reported, through gRPC and REST: metric series and scored completions."""

from __future__ import annotations

import json
import math
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from edges import Edges
from grpc.aio import AioRpcError
from job_fixtures import GOOD, change, create, register

from gateway.events import StepMetrics
from gateway.store.completions import CompletionFile
from plaudit.gateway.v1 import training_job_service_pb2 as pb


async def test_metrics_are_rows_of_steps(edges: Edges) -> None:
    await register(edges)
    made = await create(edges, GOOD)
    await add_points(edges, made.id)
    await change(edges, made.id, current_step=3)
    body = (
        await edges.http.get(
            f"/v1/training_jobs/{made.id}/metrics", params={"keys": "loss,reward_mean", "from_step": 2}
        )
    ).json()
    assert body["metrics"] == [
        {"step": 2, "attempt": 1, "values": {"loss": "NaN", "reward_mean": 0.5}},
        {"step": 3, "attempt": 1, "values": {"loss": 0.25, "reward_mean": 0.75}},
    ]
    assert body["available_keys"] == ["kl_div", "loss", "reward_mean"]
    assert body["latest_step"] == 3
    series = await edges.jobs.GetTrainingJobMetrics(
        pb.GetTrainingJobMetricsRequest(id=made.id, keys=["loss"], to_step=2)
    )
    assert [row.step for row in series.metrics] == [1, 2]
    assert dict(series.metrics[0].values) == {"loss": 1.0}
    assert math.isnan(series.metrics[1].values["loss"])
    for key in ("loss", "kl_div"):
        one = await edges.http.get(f"/v1/training_jobs/{made.id}/metrics", params={"keys": key})
        assert {name for row in one.json()["metrics"] for name in row["values"]} == {key}


async def test_completions_are_read_in_pages_with_every_outcome(edges: Edges) -> None:
    await register(edges)
    made = await create(edges, GOOD)
    await add_points(edges, made.id)
    await add_completions(edges, made.id, steps=2, each=3)
    path = f"/v1/training_jobs/{made.id}/completions"
    first = (await edges.http.get(path, params={"limit": 4})).json()
    assert (first["object"], first["has_more"]) == ("list", True)
    token = first["next_page_token"]
    rest = (await edges.http.get(path, params={"page_token": token})).json()
    assert (rest["has_more"], rest["next_page_token"]) == (False, None)
    everything = [*first["data"], *rest["data"]]
    assert [each["id"] for each in everything] == ["2-0", "2-1", "2-2", "1-0", "1-1", "1-2"]
    assert everything[1] == {
        "object": "completion",
        "id": "2-1",
        "step": 2,
        "attempt": 1,
        "group_id": "2-g0",
        "prompt_text": "1 + 1?",
        "completion_text": "<b>hostile</b>\u202e",
        "token_count": 7,
        "truncated": True,
        "reward": None,
        "advantage": None,
        "outcomes": [
            {
                "name": "right",
                "status": "timeout",
                "value": None,
                "explanation": "no answer",
                "scored_at": "2026-01-02T03:04:05.000Z",
            }
        ],
    }
    assert (everything[0]["reward"], everything[0]["outcomes"][0]["value"]) == (0.5, 0.5)
    listed = await edges.jobs.ListCompletions(pb.ListCompletionsRequest(id=made.id, step=2))
    scored, failed, _ = listed.completions
    assert (scored.completion_id, scored.reward, scored.outcomes[0].value) == ("2-0", 0.5, 0.5)
    assert not failed.HasField("reward")
    assert not failed.outcomes[0].HasField("value")
    assert (failed.outcomes[0].status, failed.outcomes[0].explanation) == ("timeout", "no answer")
    # Evaluations are listed apart, and there is none.
    assert (await edges.http.get(path, params={"evaluations": True})).json()["data"] == []
    listed = await edges.jobs.ListCompletions(pb.ListCompletionsRequest(id=made.id, evaluations=True))
    assert list(listed.completions) == []
    assert (await edges.http.get(f"{path}?page_token=nonsense")).json()["error"]["param"] == "page_token"
    assert (await edges.http.get(f"{path}?limit=-1")).json()["error"]["param"] == "limit"


async def test_the_evaluation_before_the_first_step_can_be_asked_for(edges: Edges) -> None:
    await register(edges)
    made = await create(edges, GOOD)
    await add_points(edges, made.id)
    await add_completions(edges, made.id, steps=2, each=2, first=0, of_evaluations=True)
    async with edges.store.transaction() as session:
        record = await session.jobs.find(made.id)
        assert record is not None
        await session.points.insert(record.key, 1, 0, {"eval/reward_mean": 0.5})
    path = f"/v1/training_jobs/{made.id}"

    async def rest(**query: Any) -> list[str]:
        answer = await edges.http.get(f"{path}/completions", params={"evaluations": True, **query})
        return [each["id"] for each in answer.json()["data"]]

    async def grpc(**query: Any) -> list[str]:
        request = pb.ListCompletionsRequest(id=made.id, evaluations=True, **query)
        return [each.completion_id for each in (await edges.jobs.ListCompletions(request)).completions]

    everything = ["2-0", "2-1", "1-0", "1-1", "0-0", "0-1"]
    assert await rest() == everything
    assert await rest(step=0) == ["0-0", "0-1"]
    # Who does not know the newer field sends a 0 that is not on the wire: all, as ever.
    assert await grpc(step=0) == everything
    assert await grpc(before_first_step=True) == ["0-0", "0-1"]
    # Nothing is learnt from before step 1: there 0 is all.
    assert await rest(step=0, evaluations=False) == []

    async def steps(**query: Any) -> list[int]:
        answer = await edges.http.get(f"{path}/metrics", params=query)
        return [row["step"] for row in answer.json()["metrics"]]

    assert await steps() == await steps(from_step=0) == [0, 1, 2, 3]
    assert await steps(from_step=0, to_step=0) == [0]
    asked = pb.GetTrainingJobMetricsRequest(id=made.id)
    assert len((await edges.jobs.GetTrainingJobMetrics(asked)).metrics) == 4
    asked.before_first_step = True
    assert [row.step for row in (await edges.jobs.GetTrainingJobMetrics(asked)).metrics] == [0]
    asked.to_step = 2
    with pytest.raises(AioRpcError, match="to_step: 2 and before_first_step ask for different steps"):
        await edges.jobs.GetTrainingJobMetrics(asked)
    refused = await edges.http.get(f"{path}/metrics", params={"from_step": 1, "to_step": 0})
    assert refused.json()["error"]["param"] == "to_step"


async def add_completions(
    edges: Edges, job_id: str, *, steps: int, each: int, first: int = 1, of_evaluations: bool = False
) -> None:
    """Files as a trainer writes them."""
    for step in range(first, steps + 1):
        outcomes = [
            {"name": "right", "status": "scored", "value": 0.5, "explanation": "", "scored_at": None},
            {
                "name": "right",
                "status": "timeout",
                "value": None,
                "explanation": "no answer",
                "scored_at": "2026-01-02T03:04:05+00:00",
            },
        ]
        table = pa.table(
            {
                "step": pa.array([step] * each, pa.int64()),
                "attempt": pa.array([1] * each, pa.int32()),
                "group_id": [f"{step}-g0"] * each,
                "completion_id": [f"{step}-{index}" for index in range(each)],
                "prompt_text": ["1 + 1?"] * each,
                "completion_text": ["<b>hostile</b>\u202e"] * each,
                "token_count": pa.array([7] * each, pa.int32()),
                "truncated": [True] * each,
                "reward": pa.array([0.5, *[None] * (each - 1)], pa.float64()),
                "advantage": pa.array([1.0, *[None] * (each - 1)], pa.float64()),
                "outcomes": [json.dumps([outcomes[min(index, 1)]]) for index in range(each)],
            }
        )
        uri = f"jobs/{job_id}/attempt-1/completions/step-{step:06d}.parquet"
        file = edges.artifact_root / uri
        file.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(table, file)
        async with edges.store.transaction() as session:
            record = await session.jobs.find(job_id)
            assert record is not None
            size = file.stat().st_size
            files = session.evaluation_files if of_evaluations else session.completion_files
            await files.insert(record.key, CompletionFile(1, step, uri, each, size, "0" * 64))


async def add_points(edges: Edges, job_id: str) -> None:
    rows = [
        StepMetrics(1, 1, {"loss": 1.0, "reward_mean": 0.25, "kl_div": 0.0}),
        StepMetrics(2, 1, {"loss": math.nan, "reward_mean": 0.5, "kl_div": 0.1}),
        StepMetrics(3, 1, {"loss": 0.25, "reward_mean": 0.75, "kl_div": 0.2}),
    ]
    async with edges.store.transaction() as session:
        record = await session.jobs.find(job_id)
        assert record is not None
        await session.runs.insert(
            "run_1",
            job_key=record.key,
            attempt=1,
            trainer_id="trainer",
            from_step=0,
            checkpoint_uri="",
            spec_json="{}",
            created_at=record.job.created_at,
        )
        for row in rows:
            await session.points.insert(record.key, row.attempt, row.step, row.values)
