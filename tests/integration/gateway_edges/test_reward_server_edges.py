"""Reward servers through gRPC and REST: registered whether up or not, and described as they answer now."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import grpc
import pytest
from edges import DescribedServer, Edges, described_server, details_of, open_edges

from gateway.rewards import replicas
from plaudit.gateway.v1 import reward_server_service_pb2 as pb
from plaudit.reward.v1 import reward_service_pb2
from plaudit.rpc import Credentials, Endpoint, error_from_rpc

MATH = reward_service_pb2.GetServerInfoResponse(
    server_name="math-rewards",
    server_version="1.4.0",
    min_protocol_version=1,
    max_protocol_version=1,
    rewards=[
        reward_service_pb2.Reward(
            name="exact",
            description="1 where the answer is right.",
            min_value=0.0,
            max_value=1.0,
            required_columns=["answer"],
            config_schema_json='{"type": "object", "properties": {"tag": {"type": "string"}}}',
        ),
        reward_service_pb2.Reward(name="free"),
    ],
)
DOWN = "127.0.0.1:1"


async def create(edges: Edges, name: str, *addresses: str) -> pb.RewardServer:
    request = pb.CreateRewardServerRequest(reward_server=pb.RewardServer(name=name, addresses=addresses))
    return await edges.reward_servers.CreateRewardServer(request)


async def test_a_server_that_is_up_is_described_in_both_languages(edges: Edges) -> None:
    async with described_server(DescribedServer(MATH)) as address:
        made = await create(edges, "math", address)
        assert made.id.startswith("rs_")
        assert made.reachable
        assert made.server_version == "math-rewards 1.4.0"
        exact, free = made.rewards
        assert (exact.name, exact.min_value, exact.max_value) == ("exact", 0.0, 1.0)
        assert list(exact.required_columns) == ["answer"]
        assert exact.config_schema_json == MATH.rewards[0].config_schema_json
        assert not free.HasField("min_value")
        assert free.config_schema_json == ""

        shown = (await edges.http.get("/v1/reward_servers/math")).json()
        assert (shown["object"], shown["id"], shown["reachable"]) == ("reward_server", made.id, True)
        assert shown["rewards"][0]["config_schema"]["properties"] == {"tag": {"type": "string"}}
        assert shown["rewards"][1]["config_schema"] is None
        assert shown["unreachable_reason"] is None
    gone = await edges.reward_servers.GetRewardServer(pb.GetRewardServerRequest(id="math"))
    assert not gone.reachable
    assert address in gone.unreachable_reason
    assert list(gone.rewards) == []


async def test_a_server_that_is_down_is_registered_all_the_same(edges: Edges) -> None:
    answer = await edges.http.post("/v1/reward_servers", json={"name": "judge", "addresses": [DOWN]})
    assert answer.status_code == 200
    body = answer.json()
    assert (body["name"], body["addresses"], body["reachable"]) == ("judge", [DOWN], False)
    assert DOWN in body["unreachable_reason"]


async def test_one_replica_that_answers_is_enough(edges: Edges) -> None:
    async with described_server(DescribedServer(MATH)) as address:
        assert (await create(edges, "math", DOWN, address)).reachable


async def test_registering_again_is_idempotent_and_a_taken_name_is_refused(edges: Edges) -> None:
    first = await create(edges, "judge", DOWN, "127.0.0.1:2")
    assert (await create(edges, "judge", "127.0.0.1:2", DOWN)).id == first.id
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await create(edges, "judge", "127.0.0.1:3")
    assert caught.value.code() is grpc.StatusCode.ALREADY_EXISTS
    assert error_from_rpc(caught.value).reason == "NAME_TAKEN"
    answer = await edges.http.post("/v1/reward_servers", json={"name": "judge", "addresses": ["127.0.0.1:3"]})
    assert answer.status_code == 409
    assert answer.json()["error"]["message"] == caught.value.details()


async def test_everything_wrong_is_told_at_once_in_the_same_words(edges: Edges) -> None:
    addresses = [
        *("http://x:80", "169.254.169.254:80", "[::ffff:169.254.169.254]:80", "x:0", "x", DOWN, DOWN),
        *("[fd00:ec2::254]:80", "0.0.0.0:80", "::1:80"),
    ]
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await create(edges, "Not A Name", *addresses)
    told = details_of(caught.value)
    wrong = [0, 1, 2, 3, 4, 6, 7, 8, 9]
    assert list(told) == ["name", *(f"addresses[{n}]" for n in wrong)]
    answer = await edges.http.post("/v1/reward_servers", json={"name": "Not A Name", "addresses": addresses})
    assert answer.status_code == 422
    assert {e["param"]: e["message"] for e in answer.json()["error"]["errors"]} == told
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await create(edges, "x")
    assert list(details_of(caught.value)) == ["addresses"]
    unknown = await edges.http.post("/v1/reward_servers", json={"name": "x", "adresses": [DOWN]})
    assert [e["param"] for e in unknown.json()["error"]["errors"]] == ["addresses", "adresses"]


async def test_what_is_wrong_in_its_form_hides_nothing_else(edges: Edges) -> None:
    body = {"name": "No Name", "addresses": ["nowhere"], "credential": "a/b"}
    answer = await edges.http.post("/v1/reward_servers", json=body)
    assert answer.status_code == 422, answer.text
    fields = {"name", "addresses[0]", "credential"}
    assert {wrong["param"] for wrong in answer.json()["error"]["errors"]} == fields
    asked = pb.RewardServer(name="No Name", addresses=["nowhere"], credential="a/b")
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await edges.reward_servers.CreateRewardServer(pb.CreateRewardServerRequest(reward_server=asked))
    assert set(details_of(refused.value)) == fields


async def test_servers_are_listed_by_name_and_asked_at_the_same_time(
    edges: Edges, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replicas, "DEADLINE_SECONDS", 1.0)
    async with described_server(DescribedServer(MATH, delay=30.0)) as address:
        await asyncio.gather(*(create(edges, f"slow-{n}", address) for n in range(8)))
        began = time.monotonic()
        listed = await edges.reward_servers.ListRewardServers(pb.ListRewardServersRequest())
        took = time.monotonic() - began
    assert [server.name for server in listed.reward_servers] == [f"slow-{n}" for n in range(8)]
    assert not any(server.reachable for server in listed.reward_servers)
    assert f"{address} did not answer within 1 s" in listed.reward_servers[0].unreachable_reason
    assert took < 6.0  # one after the other would take 8
    rest = (await edges.http.get("/v1/reward_servers")).json()
    assert (rest["object"], rest["has_more"], len(rest["data"])) == ("list", False, 8)


async def test_a_name_that_leads_to_a_metadata_service_is_never_dialled(
    edges: Edges, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = asyncio.get_running_loop()

    async def resolve(host: str, port: int, **kwargs: object) -> list[object]:
        return [(2, 1, 6, "", ("169.254.169.254", port))]

    def refuse(credentials: Credentials, endpoint: Endpoint, *args: object) -> None:
        raise AssertionError(f"{endpoint} was dialled")

    await create(edges, "rebinding", "metadata.example:80")
    monkeypatch.setattr(loop, "getaddrinfo", resolve)
    monkeypatch.setattr(Credentials, "open_channel", refuse)
    answer = await edges.gateway.reward_servers.get("rebinding")
    assert answer.description.unreachable_reason == (
        "metadata.example:80 leads to 169.254.169.254: link-local, metadata, multicast and unspecified "
        "addresses are not dialled"
    )


async def test_what_is_no_reward_server_is_told_apart(edges: Edges) -> None:
    server = grpc.aio.server()
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    made = await create(edges, "other", f"127.0.0.1:{port}")
    await server.stop(0)
    assert not made.reachable
    assert "is no reward server" in made.unreachable_reason
    newer = reward_service_pb2.GetServerInfoResponse(min_protocol_version=2, max_protocol_version=3)
    async with described_server(DescribedServer(newer)) as address:
        made = await create(edges, "newer", address)
    assert (
        made.unreachable_reason == "it speaks protocol versions 2 to 3 of plaudit.reward.v1, and trainers "
        "speak 1 to 1; upgrade the older of the two"
    )


async def test_a_server_is_forgotten_unless_the_settings_name_it(tmp_path: Path) -> None:
    async with open_edges(tmp_path, configured={"builtin": [DOWN]}) as edges:
        await create(edges, "judge", DOWN)
        assert (await edges.http.delete("/v1/reward_servers/judge")).json()["deleted"] is True
        assert (await edges.http.delete("/v1/reward_servers/judge")).status_code == 404
        answer = await edges.http.delete("/v1/reward_servers/builtin")
        assert answer.status_code == 409
        assert answer.json()["error"]["code"] == "IN_USE"
        first = (await edges.http.get("/v1/reward_servers/builtin")).json()
    # Another address in the settings: the same server. Out of the settings: it can be deleted.
    async with open_edges(tmp_path, configured={"builtin": ["127.0.0.1:2"]}) as edges:
        again = (await edges.http.get("/v1/reward_servers/builtin")).json()
        assert (again["id"], again["addresses"]) == (first["id"], ["127.0.0.1:2"])
    async with open_edges(tmp_path) as edges:
        assert (await edges.http.delete("/v1/reward_servers/builtin")).status_code == 200
