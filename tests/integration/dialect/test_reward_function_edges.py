"""Uploaded reward functions, in REST and over gRPC."""

from __future__ import annotations

import json

import grpc
import pytest
from dialect_jobs import BODY, OTHER_SOURCE, SOURCE, created, refused, spec_message
from edges import Edges, details_of

from plaudit.gateway.v1 import reward_function_service_pb2 as functions_pb2
from plaudit.gateway.v1 import training_job_service_pb2 as pb


async def upload(edges: Edges, source: str | bytes, name: str = "length", **fields: str) -> dict[str, str]:
    answer = await edges.http.post(
        "/v1/reward_functions",
        data={"name": name, **fields},
        files={"file": ("length.py", source, "text/x-python")},
    )
    assert answer.status_code == 200, answer.text
    function: dict[str, str] = answer.json()
    return function


async def test_the_same_content_is_the_same_function(edges: Edges) -> None:
    first = await upload(edges, SOURCE)
    assert (first["object"], first["name"], first["format"]) == ("reward_function", "length", "trl")
    assert (await upload(edges, SOURCE, format="trl"))["id"] == first["id"]
    miles = await upload(edges, SOURCE, format="miles")
    other_name = await upload(edges, SOURCE, name="längen π")
    newer = await upload(edges, OTHER_SOURCE)
    assert len({f["id"] for f in (first, miles, other_name, newer)}) == 4
    # The newest goes by the name.
    assert (await edges.http.get("/v1/reward_functions/length")).json()["id"] == newer["id"]
    assert (await edges.http.get(f"/v1/reward_functions/{first['id']}/source")).json() == {"source": SOURCE}
    got = await edges.reward_functions.GetRewardFunction(
        functions_pb2.GetRewardFunctionRequest(id=first["id"])
    )
    assert (got.source, got.sha256, got.size_bytes) == (SOURCE, first["sha256"], len(SOURCE))
    again = await edges.reward_functions.CreateRewardFunction(
        functions_pb2.CreateRewardFunctionRequest(
            reward_function=functions_pb2.RewardFunction(name="length", source=SOURCE)
        )
    )
    assert again.id == first["id"]


async def test_functions_are_listed_in_pages_and_deleted(edges: Edges) -> None:
    ids = [(await upload(edges, f"{SOURCE}# {n}\n"))["id"] for n in range(3)][::-1]
    page = (await edges.http.get("/v1/reward_functions", params={"limit": 2})).json()
    assert ([f["id"] for f in page["data"]], page["has_more"]) == (ids[:2], True)
    page = (await edges.http.get("/v1/reward_functions", params={"after": ids[1]})).json()
    assert ([f["id"] for f in page["data"]], page["has_more"]) == (ids[2:], False)
    listed = await edges.reward_functions.ListRewardFunctions(
        functions_pb2.ListRewardFunctionsRequest(page_size=1)
    )
    assert [(f.id, f.source) for f in listed.reward_functions] == [(ids[0], "")]
    assert listed.next_page_token == ids[0]
    answer = await edges.http.delete(f"/v1/reward_functions/{ids[0]}")
    assert answer.json() == {"id": ids[0], "object": "reward_function", "deleted": True}
    assert (await edges.http.get(f"/v1/reward_functions/{ids[0]}")).status_code == 404
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await edges.reward_functions.DeleteRewardFunction(
            functions_pb2.DeleteRewardFunctionRequest(id=ids[0])
        )
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND


async def test_a_job_takes_the_source_over(edges: Edges) -> None:
    first, second = await upload(edges, SOURCE), await upload(edges, OTHER_SOURCE, name="2nd", format="miles")
    job = await created(edges, reward_function_id=first["id"])
    [reward] = job["rewards"]
    assert reward["name"] == "length"
    assert reward["config"] == {"source": SOURCE, "filename": "length.py", "format": "trl"}
    two = await created(
        edges, reward_function_ids=[first["id"], second["id"], "length"], reward_weights=[1, 2, 3]
    )
    assert [(r["name"], r["weight"]) for r in two["rewards"]] == [
        ("length", 1.0),
        ("reward", 2.0),
        ("length_2", 3.0),
    ]
    made = await edges.jobs.CreateTrainingJob(
        pb.CreateTrainingJobRequest(spec=spec_message(), reward_function_ids=[first["id"]])
    )
    assert json.loads(made.spec.rewards[0].config_json) == reward["config"]
    await edges.http.delete(f"/v1/reward_functions/{first['id']}")
    answer = await edges.http.get(f"/v1/training_jobs/{job['id']}/rewards/0/source")
    assert answer.json() == {"source": SOURCE}


async def test_a_function_that_is_not_there_is_named(edges: Edges) -> None:
    known = (await upload(edges, SOURCE))["id"]
    answer = await edges.http.post(
        "/v1/training_jobs", json={**BODY, "reward_function_ids": [known, "rf_none", "rf_nil"]}
    )
    assert (answer.status_code, answer.json()["error"]["param"]) == (404, "reward_function_ids[1]")
    assert answer.json()["error"]["message"].count("there is no reward function") == 2
    told = await refused(edges, {"reward_function_id": "rf_none", "region": 3})
    assert set(told) == {"reward_function_id", "region"}
    # With all that is wrong or missing elsewhere.
    told = await refused(
        edges, {"reward_function_ids": ["rf_none", known], "output_name": "no name", "dataset_id": "nowhere"}
    )
    assert set(told) == {"reward_function_ids[0]", "output_name", "dataset_id"}
    missing = {**BODY, "reward_function_id": "rf_none", "dataset_id": "nowhere"}
    answer = await edges.http.post("/v1/training_jobs", json=missing)
    assert (answer.status_code, answer.json()["error"]["param"]) == (404, "dataset_id")
    assert "reward_function_id: there is no reward function" in answer.json()["error"]["message"]


async def test_a_wrong_upload_is_told_by_its_fields(edges: Edges) -> None:
    for name, fields, content, params in (
        ("", {}, SOURCE, {"name"}),
        ("a/b", {}, SOURCE, {"name"}),
        ("..", {}, SOURCE, {"name"}),
        ("rf_01JZX3", {}, SOURCE, {"name"}),
        ("a" * 129, {"format": "ppo"}, SOURCE, {"name", "format"}),
        ("x", {}, b"\xff\xfe", {"file"}),
        ("x", {}, b" \n", {"file"}),
        ("x", {}, b"#" * (256 * 1024 + 1), {"file"}),
        ("x", {"colour": "red"}, SOURCE, {"colour"}),
    ):
        answer = await edges.http.post(
            "/v1/reward_functions", data={"name": name, **fields}, files={"file": ("f.py", content)}
        )
        assert answer.status_code == 422, answer.text
        assert {e["param"] for e in answer.json()["error"]["errors"]} == params
    answer = await edges.http.post("/v1/reward_functions", files={"file": ("f.py", b"#" * 2_000_000)})
    assert answer.status_code == 413
    answer = await edges.http.post("/v1/reward_functions", json={"name": "x"})
    assert answer.status_code == 422
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await edges.reward_functions.CreateRewardFunction(functions_pb2.CreateRewardFunctionRequest())
    assert set(details_of(caught.value)) == {"name", "file"}


async def test_a_key_makes_an_upload_safe_to_repeat(edges: Edges) -> None:
    def parts(source: str) -> dict[str, tuple[str, str]]:
        return {"file": ("f.py", source)}

    headers = {"Idempotency-Key": "k"}
    made = [
        await edges.http.post(
            "/v1/reward_functions", data={"name": "x"}, files=parts(SOURCE), headers=headers
        )
        for _ in range(2)
    ]
    assert made[0].json()["id"] == made[1].json()["id"]
    other = await edges.http.post(
        "/v1/reward_functions", data={"name": "x"}, files=parts(OTHER_SOURCE), headers=headers
    )
    assert (other.status_code, other.json()["error"]["code"]) == (409, "REQUEST_ID_REUSED")
    await edges.http.delete(f"/v1/reward_functions/{made[0].json()['id']}")
    again = await edges.http.post(
        "/v1/reward_functions", data={"name": "x"}, files=parts(SOURCE), headers=headers
    )
    assert (again.status_code, again.json()["error"]["code"]) == (409, "REQUEST_ID_REUSED")
    assert "was deleted" in again.json()["error"]["message"]
