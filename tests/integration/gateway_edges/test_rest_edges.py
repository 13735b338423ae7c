"""What holds for every REST route: who may call, what a failure looks like, and that nothing else leaves."""

from __future__ import annotations

import json
import warnings
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from edges import Edges, details_of, open_edges
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.rest import create_app
from plaudit.gateway.v1 import training_job_pb2
from plaudit.gateway.v1 import training_job_service_pb2 as pb
from plaudit.types.hyperparameters import GrpoHyperparameters


def envelope_of(answer: Any) -> dict[str, Any]:
    """The error of an answer, once it was seen to have the form that every error has."""
    assert answer.headers["content-type"] == "application/json"
    body = answer.json()
    assert list(body) == ["error"]
    error: dict[str, Any] = body["error"]
    assert {"type", "code", "message", "param", "errors"} <= set(error)
    assert error["message"]
    assert "Traceback" not in answer.text
    return error


async def test_health_and_root_say_what_this_is(edges: Edges) -> None:
    assert (await edges.http.get("/health")).json() == {"status": "ok"}
    assert (await edges.http.get("/")).json()["openapi"] == "/openapi.json"
    head = await edges.http.head("/health")
    assert (head.status_code, head.content) == (200, b"")


async def test_every_method_at_an_address_is_told(edges: Edges) -> None:
    for path, methods in (
        ("/v1/datasets", {"GET", "POST"}),
        ("/v1/training_jobs/job_1", {"GET", "DELETE"}),
        ("/health", {"GET", "HEAD"}),
    ):
        answer = await edges.http.request("PATCH", path)
        assert answer.status_code == 405
        assert set(answer.headers["allow"].split(", ")) == methods


async def test_a_number_is_written_in_digits(edges: Edges) -> None:
    for text in ("1_0", "+5", " 5", "5.0", "٣"):
        answer = await edges.http.get("/v1/training_jobs", params={"limit": text})
        assert envelope_of(answer)["param"] == "limit", text
    assert (await edges.http.get("/v1/training_jobs", params={"limit": "05"})).status_code == 200


async def test_a_secret_in_a_query_is_not_repeated_and_a_filter_is_named(edges: Edges) -> None:
    wrong = envelope_of(await edges.http.get("/v1/training_jobs", params={"token": "vk_secret"}))
    assert wrong["param"] == "token"
    assert "vk_secret" not in json.dumps(wrong)
    missing = envelope_of(await edges.http.get("/v1/models", params={"training_job_id": "x"}))
    assert (missing["code"], missing["param"]) == ("NOT_FOUND", "training_job_id")


async def test_the_documentation_names_every_route_field_and_failure(edges: Edges) -> None:
    document = (await edges.http.get("/openapi.json")).json()
    assert set(document["paths"]["/v1/training_jobs"]) == {"get", "post"}
    for path in ("metrics", "events", "completions", "watch", "pause", "resume", "cancel"):
        assert f"/v1/training_jobs/{{id}}/{path}" in document["paths"]
    schemas = document["components"]["schemas"]
    body = document["paths"]["/v1/training_jobs"]["post"]["requestBody"]
    assert body["content"]["application/json"]["schema"] == {"$ref": "#/components/schemas/NewTrainingJob"}
    fields = schemas["GrpoHyperparameters"]["properties"]
    assert set(fields) == set(GrpoHyperparameters.model_fields)
    assert fields["rollouts_per_prompt"]["default"] == 8
    assert "name" not in schemas["RewardBinding"]["required"]
    for methods in document["paths"].values():
        for route in methods.values():
            if "service" not in route["tags"]:
                failure = route["responses"]["default"]["content"]["application/json"]["schema"]
                assert failure == {"$ref": "#/components/schemas/ErrorEnvelope"}
    references = [part.split('"')[0] for part in json.dumps(document).split("#/components/schemas/")[1:]]
    assert set(references) <= set(schemas)


async def test_the_documentation_is_made_without_a_warning_and_names_operations_once(
    edges: Edges,
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        document = create_app(edges.gateway).openapi()
    ids = [route["operationId"] for methods in document["paths"].values() for route in methods.values()]
    assert len(ids) > 50
    assert len(set(ids)) == len(ids)


async def test_unknown_routes_and_methods_answer_with_the_envelope(edges: Edges) -> None:
    for path in ("/v1/nothing", "/v1/datasets/", "/docs"):
        answer = await edges.http.get(path)
        assert answer.status_code == 404
        assert path in envelope_of(answer)["message"]
    answer = await edges.http.put("/v1/training_jobs")
    assert answer.status_code == 405
    assert envelope_of(answer)["code"] == "METHOD_NOT_ALLOWED"
    assert set(answer.headers["allow"].replace(" ", "").split(",")) <= {"GET", "POST"}


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b"", "the body is not JSON"),
        (b"{", "the body is not JSON"),
        (b"\xff\xfe", "the body is not JSON"),
        (b"[]", "the body is []; send a JSON object"),
        (b'"text"', 'the body is "text"'),
        (b"[" * 200_000, "nested more than 64 levels"),
        (b'{"method": "grpo", "method": "ppo"}', 'the name "method" stands twice in an object'),
        (b'{"a":' * 70 + b"1" + b"}" * 70, "nested more than 64 levels"),
        (b'{"base_model": "\\ud83d"}', "half of a surrogate pair (\\ud83d)"),
        (b'{"a": ' + b"9" * 5000 + b"}", "the body is not JSON"),
    ],
)
async def test_a_body_that_is_no_object_is_refused(edges: Edges, body: bytes, told: str) -> None:
    for path in ("/v1/training_jobs", "/v1/reward_servers"):
        answer = await edges.http.post(path, content=body)
        assert answer.status_code == 422
        error = envelope_of(answer)
        assert error["type"] == "invalid_request_error"
        assert told in error["message"]


async def test_a_body_is_bounded_whether_it_says_its_length_or_not(edges: Edges) -> None:
    async def endless() -> AsyncIterator[bytes]:
        for _ in range(80):
            yield b" " * 65_536

    for content in (b" " * 5_000_000, endless()):
        answer = await edges.http.post("/v1/training_jobs", content=content)
        assert answer.status_code == 413
        assert envelope_of(answer)["code"] == "BODY_TOO_LARGE"


async def test_only_loopback_names_and_own_pages_are_answered(edges: Edges) -> None:
    port = edges.http_url.rpartition(":")[2]
    for host in (
        "evil.example",
        f"evil.example:{port}",
        "10.0.0.1",
        "127.0.0.1.evil.example",
        "[::ffff:1]",
        "",
    ):
        answer = await edges.http.get("/v1/training_jobs", headers={"Host": host})
        assert answer.status_code == 403
        assert envelope_of(answer)["code"] == "PERMISSION_DENIED"
    for host in (f"localhost:{port}", f"LOCALHOST:{port}", "127.0.0.1", "127.9.9.9", f"[::1]:{port}"):
        assert (await edges.http.get("/v1/training_jobs", headers={"Host": host})).status_code == 200
    for origin in ("https://evil.example", "null", "http://127.0.0.1:1", f"https://127.0.0.1:{port}"):
        answer = await edges.http.post("/v1/reward_servers", headers={"Origin": origin}, json={})
        assert answer.status_code == 403
        assert json.dumps(origin) in envelope_of(answer)["message"]
    own = await edges.http.get("/v1/training_jobs", headers={"Origin": edges.http_url})
    assert own.status_code == 200
    assert "access-control-allow-origin" not in own.headers


async def test_an_unexpected_error_is_told_by_an_incident_and_nothing_more(
    edges: Edges, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def break_down() -> None:
        raise RuntimeError("a secret of the store")

    monkeypatch.setattr(edges.store, "snapshot", break_down)
    answer = await edges.http.get("/v1/datasets")
    assert answer.status_code == 500
    error = envelope_of(answer)
    assert (error["type"], error["code"]) == ("api_error", "INTERNAL")
    assert "secret" not in answer.text
    incident = error["message"].rpartition(" ")[2]
    assert incident in capsys.readouterr().out


FIELDS = (
    *("base_model", "dataset_id", "output_name", "method", "hyperparameters", "rewards", "resume_from"),
    *("learning_rate", "max_steps", "rollouts_per_prompt", "server", "reward", "config", "weight"),
)
names = st.sampled_from(FIELDS)
texts = st.text(max_size=6) | st.sampled_from(["builtin:tiny", "builtin:additions", "grpo", "\ud83d", "\x00"])
scalars = st.none() | st.booleans() | st.integers() | st.floats() | texts
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names | texts, inner, max_size=3),
    max_leaves=10,
)
bodies = st.dictionaries(names | texts, values, max_size=6)


async def test_any_json_is_answered_in_words_that_are_the_same_in_both_languages(tmp_path: Path) -> None:
    """Hypothesis draws bodies; the edges are opened once for all of them."""
    drawn: list[dict[str, Any]] = []

    @given(bodies)
    @settings(max_examples=80, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    def draw(body: dict[str, Any]) -> None:
        drawn.append(body)

    draw()
    async with open_edges(tmp_path) as edges:
        for body in drawn:
            answer = await edges.http.post("/v1/training_jobs", content=json.dumps(body))
            assert answer.status_code in (404, 422), answer.text
            error = envelope_of(answer)
            hyperparameters = body.get("hyperparameters")
            if set(body) <= {"hyperparameters"} and isinstance(hyperparameters, dict) and hyperparameters:
                await assert_same_by_grpc(edges, hyperparameters, error)


async def assert_same_by_grpc(edges: Edges, hyperparameters: dict[str, Any], error: dict[str, Any]) -> None:
    spec = training_job_pb2.TrainingJobSpec(hyperparameters_json=json.dumps(hyperparameters))
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await edges.jobs.CreateTrainingJob(pb.CreateTrainingJobRequest(spec=spec))
    assert details_of(caught.value) == {e["param"]: e["message"] for e in error["errors"]}
