"""Jobs through gRPC and REST: the same objects, the same refusals, in the same words."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime
from typing import Any

import grpc
import pytest
from edges import DescribedServer, Edges, described_server, details_of, jsonl
from job_fixtures import GOOD, change, create, register, to_message

from gateway.jobs.job import JobError
from gateway.rewards import Registration
from plaudit.gateway.v1 import training_job_pb2, training_job_service_pb2_grpc
from plaudit.gateway.v1 import training_job_service_pb2 as pb
from plaudit.reward.v1 import reward_service_pb2
from plaudit.rpc import error_from_rpc
from plaudit.types.statuses import JobStatus


async def refusals(edges: Edges, spec: dict[str, Any]) -> dict[str, str]:
    """What is wrong with a spec by gRPC, once REST was seen to say the same."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await create(edges, spec)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    told = details_of(caught.value)
    answer = await edges.http.post("/v1/training_jobs", json=spec)
    assert answer.status_code == 422
    assert {e["param"]: e["message"] for e in answer.json()["error"]["errors"]} == told
    return told


async def test_a_job_is_the_same_job_in_both_languages(edges: Edges) -> None:
    await register(edges)
    made = await create(edges, GOOD)
    shown = (await edges.http.get(f"/v1/training_jobs/{made.id}")).json()
    assert made.status == training_job_pb2.TRAINING_JOB_STATUS_QUEUED
    assert json.loads(made.spec.hyperparameters_json) == shown["hyperparameters"]
    assert shown["hyperparameters"]["rollouts_per_prompt"] == 8
    assert shown["hyperparameters"]["max_steps"] == 40
    assert shown["rewards"] == [
        {
            "name": "right",
            "server": "judge",
            "reward": "exact",
            "weight": 0.7,
            "config": {"tag": "answer"},
            "timeout_seconds": 2.5,
            "max_attempts": 5,
            "retry_seconds": 300.0,
        },
        {
            "name": "short",
            "server": "judge",
            "reward": "short",
            "weight": 1.0,
            "config": {},
            "timeout_seconds": 60.0,
            "max_attempts": 5,
            "retry_seconds": 300.0,
        },
    ]
    first, second = made.spec.rewards
    assert (first.timeout.ToMilliseconds(), json.loads(first.config_json)) == (2500, {"tag": "answer"})
    assert (second.name, second.weight, second.timeout.seconds) == ("short", 1.0, 60)
    assert datetime.fromisoformat(shown["created_at"]).timestamp() == pytest.approx(
        made.created_at.ToDatetime(tzinfo=UTC).timestamp(), abs=0.001
    )
    assert shown["created_at"].endswith("Z")
    expected = {
        "object": "training_job",
        "id": made.id,
        "status": "queued",
        "status_detail": "",
        "error": None,
        "base_model": "builtin:tiny",
        "dataset_id": "builtin:additions",
        "output_name": "adder",
        "method": "grpo",
        "reward_count": 2,
        "resume_from": None,
        "attempt": 0,
        "current_step": 0,
        "total_steps": None,
        "metrics": {},
        "current_loss": None,
        "latest_checkpoint_id": None,
        "started_at": None,
        "completed_at": None,
        "duration_seconds": None,
    }
    assert {name: shown[name] for name in expected} == expected
    for foreign in ("gpu", "gpu_requested", "dashboard_url", "download_url", "wandb_run_url", "cost_usd"):
        assert shown[foreign] is None


async def test_a_running_and_a_failed_job_show_what_they_have(edges: Edges) -> None:
    await register(edges)
    job_id = (await edges.http.post("/v1/training_jobs", json=GOOD)).json()["id"]
    start = datetime(2026, 1, 2, 3, 4, 5, 678000, tzinfo=UTC)
    await change(
        edges,
        job_id,
        status=JobStatus.FAILED,
        error=JobError("out_of_memory", "48 GB were not enough"),
        metrics={"loss": math.nan, "reward_mean": 0.5, "grad_norm": math.inf, "kl_div": -math.inf},
        current_step=7,
        total_steps=40,
        attempt=2,
        started_at=start,
        finished_at=start.replace(second=35),
        latest_checkpoint_id=f"{job_id}@4",
    )
    shown = (await edges.http.get(f"/v1/training_jobs/{job_id}")).json()
    assert shown["error"] == {"code": "oom", "message": "48 GB were not enough"}
    assert shown["metrics"] == {
        "loss": "NaN",
        "reward_mean": 0.5,
        "grad_norm": "Infinity",
        "kl_div": "-Infinity",
    }
    assert shown["current_loss"] == "NaN"
    assert (shown["started_at"], shown["completed_at"], shown["duration_seconds"]) == (
        "2026-01-02T03:04:05.678Z",
        "2026-01-02T03:04:35.678Z",
        30.0,
    )
    assert (shown["current_step"], shown["total_steps"], shown["attempt"]) == (7, 40, 2)
    job = await edges.jobs.GetTrainingJob(pb.GetTrainingJobRequest(id=job_id))
    assert job.error.code == "out_of_memory"
    assert math.isnan(job.metrics["loss"])
    assert job.metrics["grad_norm"] == math.inf


async def test_ten_wrong_fields_are_named_in_one_answer_in_the_same_words(edges: Edges) -> None:
    await register(edges)
    wrong = {
        "base_model": "builtin:tiny",
        "dataset_id": "no-such-dataset",
        "output_name": "not a name",
        "method": "ppo",
        "hyperparameters": {
            "learning_rate": -1,
            "kl_coef": "much",
            "rollouts_per_prompt": 1,
            "loss_type": "mine",
            "checkpoint_every": 2.5,
            "learning_rat": 1e-6,
        },
        "rewards": [
            {"server": "nowhere", "reward": "exact"},
            {"server": "judge", "reward": "short", "weight": 1000000.5},
            {"server": "judge", "reward": "short", "timeout_seconds": 0},
        ],
    }
    told = await refusals(edges, wrong)
    assert set(told) == {
        "dataset_id",
        "output_name",
        "method",
        "hyperparameters.learning_rate",
        "hyperparameters.kl_coef",
        "hyperparameters.rollouts_per_prompt",
        "hyperparameters.loss_type",
        "hyperparameters.checkpoint_every",
        "hyperparameters.learning_rat",
        "rewards[0].server",
        "rewards[1].weight",
        "rewards[2].name",
        "rewards[2].timeout_seconds",
    }
    assert (await edges.http.get("/v1/training_jobs")).json()["data"] == []


async def test_what_a_reward_server_needs_is_checked_when_it_is_up(edges: Edges) -> None:
    async with edges.gateway.datasets.upload() as upload:
        await upload.write(jsonl(*({"prompt": f"{n}?", "solution": n} for n in range(8))))
        await upload.store("sums")
    schema = '{"properties": {"tag": {"type": "string"}}, "additionalProperties": false}'
    info = reward_service_pb2.GetServerInfoResponse(
        min_protocol_version=1,
        max_protocol_version=1,
        rewards=[
            reward_service_pb2.Reward(name="exact", required_columns=["answer"], config_schema_json=schema)
        ],
    )
    async with described_server(DescribedServer(info)) as address:
        await edges.gateway.reward_servers.create("math", Registration(addresses=(address,)))
        binding = {"server": "math", "reward": "exact"}
        spec = {**GOOD, "dataset_id": "sums", "rewards": [binding]}
        told = await refusals(edges, spec)
        assert list(told) == ["rewards[0].reward"]
        assert '"answer"' in told["rewards[0].reward"]
        assert "solution" in told["rewards[0].reward"]
        told = await refusals(edges, {**spec, "rewards": [{**binding, "config": {"tag": 1, "tagg": "x"}}]})
        # The column is told again: everything at once.
        column = told.pop("rewards[0].reward")
        assert column.startswith('"answer": exact needs this column')
        assert told == {
            "rewards[0].config.tag": "1 is not of type 'string'",
            "rewards[0].config.tagg": '"x": there is no such field; it takes tag',
        }


async def test_more_wrong_fields_than_fit_reach_any_client(edges: Edges) -> None:
    wrong = {f"field_{n}": "ü" * 70 for n in range(2000)}
    spec = training_job_pb2.TrainingJobSpec(hyperparameters_json=json.dumps(wrong))
    # A client in another language has gRPC's own limits, not ours.
    async with grpc.aio.insecure_channel(edges.grpc_address) as channel:
        stub = training_job_service_pb2_grpc.TrainingJobServiceStub(channel)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.CreateTrainingJob(pb.CreateTrainingJobRequest(spec=spec))
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    told = details_of(caught.value)
    assert len(told) > 10
    assert told["(request)"] == f"{2004 - (len(told) - 1)} more are wrong; mend these first"
    answer = await edges.http.post("/v1/training_jobs", json={"hyperparameters": wrong})
    assert len(answer.json()["error"]["errors"]) == 2004


async def test_text_that_is_no_json_is_told_with_all_else_that_is_wrong(edges: Edges) -> None:
    spec = to_message({**GOOD, "output_name": "not a name"})
    spec.hyperparameters_json = "{nonsense"
    spec.rewards[0].config_json = "[1]"
    spec.rewards[1].config_json = "[" * 100_000
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await edges.jobs.CreateTrainingJob(pb.CreateTrainingJobRequest(spec=spec))
    told = details_of(caught.value)
    # The reward server is not there either.
    assert set(told) == {
        *("hyperparameters", "rewards[0].config", "rewards[1].config", "output_name"),
        *("rewards[0].server", "rewards[1].server"),
    }
    assert "is not JSON" in told["hyperparameters"]
    assert "[1] is not a JSON object" in told["rewards[0].config"]
    assert "nested more than 64 levels" in told["rewards[1].config"]
    # Without what is no JSON it is like a request that was made; it is refused all the same.
    good = to_message({**GOOD, "hyperparameters": {}})
    made = pb.CreateTrainingJobRequest(spec=good, request_id="again")
    await register(edges)
    await edges.jobs.CreateTrainingJob(made)
    made.spec.hyperparameters_json = "{nonsense"
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await edges.jobs.CreateTrainingJob(made)
    assert set(details_of(caught.value)) == {"hyperparameters"}


async def test_numbers_that_json_does_not_have_are_refused_by_name(edges: Edges) -> None:
    await register(edges)
    spec = {
        **GOOD,
        "hyperparameters": {"learning_rate": math.nan, "temperature": math.inf},
        "rewards": [{"server": "judge", "reward": "exact", "config": {"weights": [1.0, math.nan]}}],
    }
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await create(edges, spec)
    told = details_of(caught.value)
    assert set(told) == {"hyperparameters.learning_rate", "hyperparameters.temperature", "rewards[0].config"}
    answer = await edges.http.post("/v1/training_jobs", content=json.dumps(spec))
    assert {e["param"]: e["message"] for e in answer.json()["error"]["errors"]} == told


async def test_nothing_at_all_is_told_what_is_missing(edges: Edges) -> None:
    told = await refusals(edges, {})
    assert set(told) == {"base_model", "dataset_id", "output_name", "rewards"}


async def test_a_dataset_or_server_that_is_not_known_is_not_found(edges: Edges) -> None:
    await register(edges)
    spec = {**GOOD, "dataset_id": "nowhere"}
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await create(edges, spec)
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND
    answer = await edges.http.post("/v1/training_jobs", json=spec)
    assert answer.status_code == 404
    error = answer.json()["error"]
    assert (error["code"], error["param"]) == ("NOT_FOUND", "dataset_id")
    assert error["message"] == caught.value.details()


async def test_a_request_id_makes_a_retry_safe_in_both_languages(edges: Edges) -> None:
    await register(edges)
    key = "2b7d3a5e-5d0f-4a55-9a57-0d0d2a1f6f11"
    made = await create(edges, GOOD, request_id=key)
    again = await edges.http.post("/v1/training_jobs", json=GOOD, headers={"Idempotency-Key": key})
    assert again.json()["id"] == made.id
    other = {**GOOD, "output_name": "another"}
    answer = await edges.http.post("/v1/training_jobs", json=other, headers={"Idempotency-Key": key})
    assert answer.status_code == 409
    assert answer.json()["error"]["code"] == "REQUEST_ID_REUSED"
    assert len((await edges.http.get("/v1/training_jobs")).json()["data"]) == 1
    answer = await edges.http.post("/v1/training_jobs", json=GOOD, headers={"Idempotency-Key": "a b"})
    assert [e["param"] for e in answer.json()["error"]["errors"]] == ["Idempotency-Key"]


async def test_a_request_can_be_checked_without_queueing(edges: Edges) -> None:
    await register(edges)
    checked = await create(edges, GOOD, validate_only=True)
    rest = await edges.http.post("/v1/training_jobs?validate_only=true", json=GOOD)
    assert rest.status_code == 200
    assert checked.id == rest.json()["id"] == ""
    assert (await edges.http.get("/v1/training_jobs")).json()["data"] == []


async def test_jobs_are_listed_newest_first_in_pages_and_by_status(edges: Edges) -> None:
    await register(edges)
    ids = [(await create(edges, {**GOOD, "output_name": f"job-{n}"})).id for n in range(5)]
    await edges.jobs.CancelTrainingJob(pb.CancelTrainingJobRequest(id=ids[1]))
    newest_first = ids[::-1]
    page = (await edges.http.get("/v1/training_jobs", params={"limit": 3})).json()
    assert [job["id"] for job in page["data"]] == newest_first[:3]
    assert (page["object"], page["has_more"]) == ("list", True)
    rest = (await edges.http.get("/v1/training_jobs", params={"after": newest_first[2]})).json()
    assert [job["id"] for job in rest["data"]] == newest_first[3:]
    assert rest["has_more"] is False

    listed = await edges.jobs.ListTrainingJobs(pb.ListTrainingJobsRequest(page_size=3))
    assert [job.id for job in listed.training_jobs] == newest_first[:3]
    listed = await edges.jobs.ListTrainingJobs(pb.ListTrainingJobsRequest(page_token=listed.next_page_token))
    assert [job.id for job in listed.training_jobs] == newest_first[3:]
    cancelled = await edges.jobs.ListTrainingJobs(
        pb.ListTrainingJobsRequest(statuses=[training_job_pb2.TRAINING_JOB_STATUS_CANCELLED])
    )
    assert [job.id for job in cancelled.training_jobs] == [ids[1]]
    for query, expected in [
        ("status=cancelled", [ids[1]]),
        ("status=queued,cancelled", newest_first),
        ("status=running&status=paused", []),
        ("method=grpo", newest_first),
        ("method=sft", []),
    ]:
        data = (await edges.http.get(f"/v1/training_jobs?{query}")).json()["data"]
        assert [job["id"] for job in data] == expected
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await edges.jobs.ListTrainingJobs(pb.ListTrainingJobsRequest(statuses=[0, 99]))
    assert list(details_of(caught.value)) == ["statuses[0]", "statuses[1]"]


async def test_wrong_parameters_are_all_named(edges: Edges) -> None:
    for query, params in [
        ("limit=many&status=asleep&ordr=x", ["limit", "status[0]", "ordr"]),
        ("limit=-1", ["limit"]),
        ("after=job_nowhere", ["after"]),
        ("method=ppo", ["method"]),
        ("limit=1&limit=2&after=a&after=b", ["limit", "after"]),
    ]:
        answer = await edges.http.get(f"/v1/training_jobs?{query}")
        assert answer.status_code == 422
        assert [e["param"] for e in answer.json()["error"]["errors"]] == params
    for path in ("metrics?max_points=5001", "metrics?from_step=-1", "events?limit=x", "watch?kinds=nonsense"):
        answer = await edges.http.get(f"/v1/training_jobs/job_1/{path}")
        assert answer.status_code == 422


async def test_a_status_that_forbids_is_told_with_the_status_found(edges: Edges) -> None:
    await register(edges)
    made = await create(edges, GOOD)
    answer = await edges.http.post(f"/v1/training_jobs/{made.id}/resume")
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert (error["type"], error["code"]) == ("invalid_request_error", "STATUS_FORBIDS")
    assert "is queued" in error["message"]
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await edges.jobs.ResumeTrainingJob(pb.ResumeTrainingJobRequest(id=made.id))
    assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert error_from_rpc(caught.value).reason == "STATUS_FORBIDS"
    assert caught.value.details() == error["message"]

    assert (await edges.http.post(f"/v1/training_jobs/{made.id}/pause")).json()["status"] == "paused"
    resumed = await edges.jobs.ResumeTrainingJob(pb.ResumeTrainingJobRequest(id=made.id))
    assert resumed.status == training_job_pb2.TRAINING_JOB_STATUS_QUEUED
    paused = await edges.jobs.PauseTrainingJob(pb.PauseTrainingJobRequest(id=made.id))
    assert paused.status == training_job_pb2.TRAINING_JOB_STATUS_PAUSED
    assert (await edges.http.post(f"/v1/training_jobs/{made.id}/cancel")).json()["status"] == "cancelled"
    again = await edges.http.post(f"/v1/training_jobs/{made.id}/cancel")
    assert (again.status_code, again.json()["status"]) == (200, "cancelled")


async def test_a_job_that_is_not_known_is_not_found_anywhere(edges: Edges) -> None:
    for method, path in [
        ("GET", ""),
        ("POST", "/pause"),
        ("POST", "/resume"),
        ("POST", "/cancel"),
        ("GET", "/metrics"),
        ("GET", "/completions"),
        ("GET", "/events"),
        ("GET", "/watch"),
    ]:
        answer = await edges.http.request(method, f"/v1/training_jobs/job_nowhere{path}")
        assert answer.status_code == 404
        assert answer.json()["error"]["param"] == "id"
        assert '"job_nowhere"' in answer.json()["error"]["message"]
