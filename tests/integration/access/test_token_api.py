"""Tokens by gRPC and REST, and the log of what was done with them."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import grpc
import httpx2
import pytest
from access_room import Guarded
from edges import details_of
from google.protobuf.timestamp_pb2 import Timestamp

from plaudit.client import Client
from plaudit.errors import PermissionDeniedError, UnauthenticatedError
from plaudit.gateway.v1 import token_service_pb2 as pb
from plaudit.gateway.v1 import token_service_pb2_grpc
from plaudit.types.roles import Role


async def test_rest_makes_lists_and_revokes(guarded: Guarded) -> None:
    expires = datetime.now(UTC).replace(microsecond=0) + timedelta(days=1)
    body = {"name": "ci", "role": "operator", "expires_at": expires.isoformat()}
    made = (await guarded.request("POST", "/v1/tokens", Role.ADMIN, json=body)).json()
    assert len(made["secret"]) == 46
    assert made["secret"].startswith("vk_")
    assert (made["name"], made["role"], made["created_by"]) == ("ci", "operator", "admin")
    me = (await guarded.request("GET", "/v1/me", made["secret"])).json()
    assert (me["name"], me["role"], me["user_id"]) == ("ci", "operator", made["id"])
    listed = (await guarded.request("GET", "/v1/tokens", Role.ADMIN)).json()["data"]
    assert [token["name"] for token in listed] == ["ci", "service", "admin", "operator", "viewer"]
    assert listed[0]["last_used_at"] is not None
    assert datetime.fromisoformat(listed[0]["expires_at"]) == expires
    assert not any("secret" in token or "digest" in token for token in listed)
    again = await guarded.request("POST", "/v1/tokens", Role.ADMIN, json=body)
    assert (again.status_code, again.json()["error"]["code"]) == (409, "NAME_TAKEN")
    assert (await guarded.request("DELETE", "/v1/tokens/ci", Role.ADMIN)).json()["id"] == made["id"]
    assert (await guarded.request("DELETE", "/v1/tokens/ci", Role.ADMIN)).status_code == 404
    # The name is free again.
    assert (await guarded.request("POST", "/v1/tokens", Role.ADMIN, json=body)).status_code == 200


@pytest.mark.parametrize(
    ("body", "fields"),
    [
        ({}, {"name", "role"}),
        ({"name": "A b", "role": "viewer"}, {"name"}),
        ({"name": "a", "role": "root"}, {"role"}),
        ({"name": "a", "role": "viewer", "expires_at": "2020-01-01T00:00:00Z"}, {"expires_at"}),
        ({"name": "a", "role": "viewer", "expires_at": "9999-12-31T00:00:00Z"}, {"expires_at"}),
        ({"name": "a", "role": "viewer", "expires_at": "soon"}, {"expires_at"}),
        ({"name": "A b", "role": "root", "expires_at": "2020-01-01"}, {"name", "role", "expires_at"}),
        ({"name": 3, "expires_at": "soon", "scope": "all"}, {"name", "role", "expires_at", "scope"}),
        ({"name": "a", "role": "viewer", "scope": "all"}, {"scope"}),
    ],
)
async def test_a_wrong_token_is_refused_by_its_fields(
    guarded: Guarded, body: dict[str, str], fields: set[str]
) -> None:
    answer = await guarded.request("POST", "/v1/tokens", Role.ADMIN, json=body)
    assert answer.status_code == 422
    assert {wrong["param"] for wrong in answer.json()["error"]["errors"]} == fields


async def test_grpc_names_every_wrong_field_too(guarded: Guarded) -> None:
    stub = token_service_pb2_grpc.TokenServiceStub(guarded.edges.channel)
    metadata = guarded.metadata(Role.ADMIN)
    request = pb.CreateTokenRequest(name="-")
    request.expires_at.FromSeconds(1)
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await stub.CreateToken(request, metadata=metadata, timeout=10)
    assert set(details_of(refused.value)) == {"name", "role", "expires_at"}
    for stamp in (Timestamp(seconds=2**63 - 1), Timestamp(seconds=-1, nanos=-1), Timestamp(nanos=2**31 - 1)):
        request = pb.CreateTokenRequest(name="a", role=pb.ROLE_VIEWER, expires_at=stamp)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await stub.CreateToken(request, metadata=metadata, timeout=10)
        assert set(details_of(refused.value)) == {"expires_at"}
        request = pb.CreateTokenRequest(name="-", expires_at=stamp)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await stub.CreateToken(request, metadata=metadata, timeout=10)
        assert set(details_of(refused.value)) == {"name", "role", "expires_at"}
    for page in (pb.ListAuditEntriesRequest(page_size=-1), pb.ListAuditEntriesRequest(page_token="x")):
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await stub.ListAuditEntries(page, metadata=metadata, timeout=10)
        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_the_sdk_does_it_all_and_tells_what_is_missing(guarded: Guarded) -> None:
    address = guarded.edges.grpc_address

    def use() -> None:
        with Client(address, token=guarded.secrets[Role.ADMIN]) as admin:
            new = admin.tokens.create("robot", "service")
            assert new.secret not in repr(new)
            with Client(address, token=new.secret) as robot:
                assert (robot.tokens.caller().name, robot.tokens.caller().role) == ("robot", Role.SERVICE)
                with pytest.raises(PermissionDeniedError, match="use one of the role admin"):
                    robot.reward_servers.create("judge", ["127.0.0.1:1"])
                admin.tokens.revoke("robot")
                with pytest.raises(UnauthenticatedError, match="plaudit token create"):
                    robot.tokens.caller()
            assert next(token.name for token in admin.tokens.list()) == "service"
            calls = [(e.caller, e.call, e.outcome) for e in admin.tokens.audit()]
            service = "/plaudit.gateway.v1."
            assert calls[:3] == [
                ("admin", f"{service}TokenService/RevokeToken", "ok"),
                ("robot", f"{service}RewardServerService/CreateRewardServer", "ROLE_TOO_WEAK"),
                ("admin", f"{service}TokenService/CreateToken", "ok"),
            ]
        with Client(address) as nobody, pytest.raises(UnauthenticatedError, match="PLAUDIT_TOKEN"):
            nobody.training_jobs.get("job_1")

    await asyncio.to_thread(use)


async def test_what_changes_something_is_written_down_with_its_id_and_outcome(guarded: Guarded) -> None:
    upload = {"file": ("a.jsonl", b'{"prompt": "a"}\n')}
    made = await guarded.request("POST", "/v1/datasets", Role.OPERATOR, files=upload, data={"name": "a"})
    dataset = made.json()["id"]
    await guarded.request("GET", f"/v1/datasets/{dataset}", Role.OPERATOR)
    await guarded.request("POST", "/v1/training_jobs", Role.OPERATOR, json={})
    await guarded.request("DELETE", f"/v1/datasets/{dataset}", Role.VIEWER)
    await guarded.request("DELETE", f"/v1/datasets/{dataset}", Role.OPERATOR)
    await guarded.request("DELETE", f"/v1/datasets/{dataset}", None)
    page = (await guarded.request("GET", "/v1/audit?limit=3", Role.ADMIN)).json()
    rest = await guarded.request("GET", f"/v1/audit?page_token={page['next_page_token']}", Role.ADMIN)
    entries = [*page["data"], *rest.json()["data"]]
    assert (page["has_more"], rest.json()["has_more"]) == (True, False)
    assert [(e["caller"], e["call"], e["subject"], e["outcome"]) for e in entries] == [
        ("operator", f"DELETE /v1/datasets/{dataset}", dataset, "ok"),
        ("viewer", f"DELETE /v1/datasets/{dataset}", None, "ROLE_TOO_WEAK"),
        ("operator", "POST /v1/training_jobs", None, "INVALID_ARGUMENT"),
        ("operator", "POST /v1/datasets", dataset, "ok"),
    ]
    assert {e["peer"] for e in entries} == {"127.0.0.1"}


async def test_many_changes_at_once_are_all_written_down(guarded: Guarded) -> None:
    async def ask(number: int) -> httpx2.Response:
        return await guarded.request("DELETE", f"/v1/datasets/ds_{number}", Role.OPERATOR)

    assert {r.status_code for r in await asyncio.gather(*(ask(n) for n in range(100)))} == {404}
    entries = (await guarded.request("GET", "/v1/audit?limit=500", Role.ADMIN)).json()["data"]
    assert {e["call"] for e in entries} == {f"DELETE /v1/datasets/ds_{n}" for n in range(100)}
