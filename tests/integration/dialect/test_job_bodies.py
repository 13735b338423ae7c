"""What other clients send to create a job, in REST and over gRPC, and what they are told."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import grpc
import pytest
from dialect_jobs import BODY, OTHER_SOURCE, SOURCE, created, end, refused, spec_message
from edges import Edges, details_of

from plaudit.gateway.v1 import training_job_service_pb2 as pb


async def test_a_source_becomes_a_reward_of_the_builtin_server(edges: Edges) -> None:
    job = await created(edges, reward_source=SOURCE)
    assert job["reward_count"] == 1
    [reward] = job["rewards"]
    assert (reward["server"], reward["reward"], reward["name"]) == ("builtin", "python_function", "reward")
    assert reward["config"] == {"source": SOURCE}
    answer = await edges.http.get(f"/v1/training_jobs/{job['id']}/rewards/0/source")
    assert answer.json() == {"source": SOURCE}


async def test_sources_have_weights_in_both_languages(edges: Edges) -> None:
    job = await created(edges, reward_sources=[SOURCE, OTHER_SOURCE], reward_weights=[1, -0.25])
    assert [(r["name"], r["weight"]) for r in job["rewards"]] == [("reward_1", 1.0), ("reward_2", -0.25)]
    made = await edges.jobs.CreateTrainingJob(
        pb.CreateTrainingJobRequest(
            spec=spec_message(), reward_sources=[SOURCE, OTHER_SOURCE], reward_weights=[1, -0.25]
        )
    )
    assert [(r.name, r.weight, json.loads(r.config_json)["source"]) for r in made.spec.rewards] == [
        ("reward_1", 1.0, SOURCE),
        ("reward_2", -0.25, OTHER_SOURCE),
    ]
    answer = await edges.http.get(f"/v1/training_jobs/{made.id}/rewards/1/source")
    assert answer.json() == {"source": OTHER_SOURCE}
    for index in ("2", "-1"):
        answer = await edges.http.get(f"/v1/training_jobs/{made.id}/rewards/{index}/source")
        assert (answer.status_code, answer.json()["error"]["param"]) == (404, "index")


async def test_what_a_reward_server_runs_has_no_source(edges: Edges) -> None:
    job = await created(edges, rewards=[{"server": "builtin", "reward": "exact_answer"}])
    answer = await edges.http.get(f"/v1/training_jobs/{job['id']}/rewards/0/source")
    assert answer.status_code == 404
    assert "exact_answer of builtin" in answer.json()["error"]["message"]


REWARD = {"server": "builtin", "reward": "exact_answer"}


WRONG: list[tuple[dict[str, Any], set[str]]] = [
    ({}, {"rewards"}),
    ({"reward_source": SOURCE, "rewards": [REWARD]}, {"reward_source"}),
    ({"reward_source": SOURCE, "reward_sources": [SOURCE]}, {"reward_sources"}),
    ({"reward_function_id": "x", "reward_source": SOURCE}, {"reward_function_id"}),
    ({"reward_source": 3}, {"reward_source"}),
    ({"reward_source": " "}, {"reward_source"}),
    ({"reward_sources": SOURCE}, {"reward_sources"}),
    ({"reward_sources": [SOURCE, None]}, {"reward_sources[1]"}),
    ({"reward_sources": [SOURCE] * 9}, {"reward_sources"}),
    ({"reward_source": "#" * (256 * 1024 + 1)}, {"reward_source"}),
    ({"reward_sources": [SOURCE], "reward_weights": [1, 2]}, {"reward_weights"}),
    ({"reward_sources": [SOURCE], "reward_weights": ["1"]}, {"reward_weights"}),
    ({"reward_sources": [SOURCE, SOURCE], "reward_weights": [1, 1e9]}, {"reward_weights[1]"}),
    ({"rewards": [REWARD], "reward_weights": [1]}, {"reward_weights"}),
    ({"reward_weights": [1]}, {"reward_weights"}),
    ({"reward_source": SOURCE, "method": "sft_text"}, {"reward_source", "dataset_id"}),
    ({"rewards": [REWARD], "gpu": 3}, {"gpu"}),
    ({"rewards": [REWARD], "gpu": {"gpu_type": 3, "memory": 80}}, {"gpu.gpu_type", "gpu.memory"}),
    ({"rewards": [REWARD], "gpu": {"type": "L4", "count": 0}}, {"gpu.gpu_count"}),
    ({"rewards": [REWARD], "region": 1, "provider": []}, {"region", "provider"}),
    (
        {"rewards": [REWARD], "hf_push": "me", "checkpoint_destination": 1},
        {"hf_push", "checkpoint_destination"},
    ),
    ({"rewards": [REWARD], "requires_heartbeat": "yes"}, {"requires_heartbeat"}),
    ({"rewards": [REWARD], "volume": "v", "num_nodes": 2}, {"volume", "num_nodes"}),
]
"""Fields beside BODY, and those that are told."""


async def test_wrong_fields_are_told_by_the_names_that_were_sent(edges: Edges) -> None:
    for fields, told in WRONG:
        assert set(await refused(edges, fields)) == told, fields
        both = await refused(edges, {**fields, "output_name": "a b"})
        assert set(both) == told | {"output_name"}, fields


async def test_grpc_tells_the_same_of_the_same(edges: Edges) -> None:
    fields = {"reward_sources": [SOURCE, " "], "reward_weights": [1, 2, 3]}
    told = await refused(edges, fields)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await edges.jobs.CreateTrainingJob(
            pb.CreateTrainingJobRequest(spec=spec_message(), **fields)  # type: ignore[arg-type]
        )
    assert details_of(caught.value) == told
    assert set(told) == {"reward_sources[1]", "reward_weights"}


async def test_without_the_builtin_server_the_source_is_what_is_told(edges: Edges) -> None:
    async with edges.store.transaction() as session:
        server = await session.reward_servers.find("builtin")
        assert server is not None
        await session.reward_servers.delete(server.id)
    answer = await edges.http.post("/v1/training_jobs", json={**BODY, "reward_source": SOURCE})
    assert (answer.status_code, answer.json()["error"]["param"]) == (404, "reward_source")
    assert answer.json()["error"]["message"].startswith("reward_source: ")


async def test_what_has_no_effect_is_told_in_the_events(edges: Edges) -> None:
    asked = {
        "gpu": {"gpu_type": "H100-80GB", "gpu_count": 2},
        "provider": "aws",
        "region": "eu-west-1",
        "checkpoint_destination": {"type": "s3", "credentials": "secret"},
        "hf_push": {"repo": "me/model", "artifact": "merged"},
    }
    job = await created(edges, reward_source=SOURCE, **asked)
    assert job["gpu_requested"] == {"type": "H100-80GB", "count": 2}
    assert job["gpu"] is None
    listed = (await edges.http.get(f"/v1/training_jobs/{job['id']}/events")).json()
    told = {e["metadata"]["field"]: e for e in listed["data"] if e["event_type"] == "log_line"}
    assert set(told) == set(asked)
    assert {e["level"] for e in told.values()} == {"info"}
    assert all(name in event["message"] for name, event in told.items())
    assert "secret" not in json.dumps(listed)
    quiet = await created(edges, reward_source=SOURCE, **dict.fromkeys(asked))
    listed = (await edges.http.get(f"/v1/training_jobs/{quiet['id']}/events")).json()
    assert [event["event_type"] for event in listed["data"]] == ["status_changed"]
    older = await created(edges, reward_source=SOURCE, gpu={"type": "L4", "count": 1})
    assert older["gpu_requested"] == {"type": "L4", "count": 1}


async def test_a_job_that_starts_from_another_takes_its_rewards(edges: Edges) -> None:
    first = await created(edges, reward_sources=[SOURCE, OTHER_SOURCE], reward_weights=[1, 2])
    answer = await edges.http.post("/v1/training_jobs", json={**BODY, "resume_from": first["id"]})
    # It has no checkpoint yet, which is all that is wrong: its rewards are known.
    assert answer.status_code in (400, 404, 422)
    assert answer.json()["error"]["param"] == "resume_from"
    unknown = await edges.http.post("/v1/training_jobs", json={**BODY, "resume_from": "job_none"})
    assert unknown.status_code in (404, 422)


async def test_jobs_are_listed_by_method(edges: Edges) -> None:
    job = await created(edges, reward_source=SOURCE)
    for method, ids in (("grpo", [job["id"]]), ("sft", []), ("sft_text", [])):
        answer = await edges.http.get("/v1/training_jobs", params={"method": method})
        assert [found["id"] for found in answer.json()["data"]] == ids
    listed = await edges.jobs.ListTrainingJobs(pb.ListTrainingJobsRequest(method="sft"))
    assert list(listed.training_jobs) == []
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await edges.jobs.ListTrainingJobs(pb.ListTrainingJobsRequest(method="ppo"))
    assert set(details_of(caught.value)) == {"method"}


async def test_a_page_of_jobs_with_large_programs_ends_early(edges: Edges) -> None:
    large = SOURCE + "#" * (256 * 1024 - len(SOURCE))
    ids = [(await created(edges, reward_sources=[large] * 4))["id"] for _ in range(3)]
    page = (await edges.http.get("/v1/training_jobs")).json()
    assert page["has_more"]
    seen = [job["id"] for job in page["data"]]
    while page["has_more"]:
        page = (await edges.http.get("/v1/training_jobs", params={"after": seen[-1]})).json()
        seen += [job["id"] for job in page["data"]]
    assert seen == ids[::-1]


async def test_a_thousand_concurrent_creates_with_one_key_are_one_job(edges: Edges) -> None:
    body = {**BODY, "reward_source": SOURCE}
    gate = asyncio.Semaphore(200)

    async def create(number: int) -> str:
        async with gate:
            if number % 2:
                made = await edges.jobs.CreateTrainingJob(
                    pb.CreateTrainingJobRequest(
                        spec=spec_message(), reward_sources=[SOURCE], request_id="one-key"
                    )
                )
                return made.id
            answer = await edges.http.post(
                "/v1/training_jobs",
                json={**body, "reward_source": None, "reward_sources": [SOURCE]},
                headers={"Idempotency-Key": "one-key"},
            )
            return str(answer.json()["id"])

    ids = await asyncio.gather(*(create(number) for number in range(1000)))
    assert len(set(ids)) == 1
    assert len((await edges.http.get("/v1/training_jobs")).json()["data"]) == 1


async def test_a_key_is_for_one_request(edges: Edges) -> None:
    headers = {"Idempotency-Key": "k"}
    first = await edges.http.post(
        "/v1/training_jobs", json={**BODY, "reward_source": SOURCE}, headers=headers
    )
    other = await edges.http.post(
        "/v1/training_jobs", json={**BODY, "reward_source": OTHER_SOURCE}, headers=headers
    )
    assert (other.status_code, other.json()["error"]["code"]) == (409, "REQUEST_ID_REUSED")
    # A default that is spelt out is no difference.
    spelt = {**BODY, "reward_source": SOURCE, "method": "grpo", "gpu": None}
    again = await edges.http.post("/v1/training_jobs", json=spelt, headers=headers)
    assert again.json()["id"] == first.json()["id"]
    await end(edges, first.json()["id"])
    await edges.http.delete(f"/v1/training_jobs/{first.json()['id']}")
    # What was deleted is not made again by a repetition.
    late = await edges.http.post("/v1/training_jobs", json=spelt, headers=headers)
    assert (late.status_code, late.json()["error"]["code"]) == (409, "REQUEST_ID_REUSED")
    anew = await edges.http.post("/v1/training_jobs", json=spelt, headers={"Idempotency-Key": "k2"})
    assert anew.status_code == 200
    assert anew.json()["id"] != first.json()["id"]
