"""Every route and every method, without a token, with a wrong one, and with one that is too weak."""

from __future__ import annotations

import asyncio

import grpc
import pytest
from access_room import Guarded, outcome_of
from google.protobuf import descriptor_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from gateway.access.secret import new_secret
from plaudit.types.roles import Role

OPEN = {
    ("GET", "/health"),
    ("GET", "/openapi.json"),
    ("GET", "/v1/files/{address}"),
    ("HEAD", "/v1/files/{address}"),
}
"""What needs no token: a signed URL carries its own permission."""
WRONG = [None, new_secret()]
READING = ("Get", "List", "Watch", "Download", "Stream")


def needed(method: str, path: str) -> Role:
    """The weakest role that may: written down here once more, by hand."""
    if path.startswith(("/v1/tokens", "/v1/audit")):
        return Role.ADMIN
    if method == "GET":
        return Role.VIEWER
    return Role.ADMIN if path.startswith("/v1/reward_servers") else Role.OPERATOR


def weaker(role: Role) -> list[Role]:
    return {
        Role.VIEWER: [],
        Role.OPERATOR: [Role.VIEWER, Role.SERVICE],
        Role.ADMIN: [Role.VIEWER, Role.SERVICE, Role.OPERATOR],
    }[role]


async def routes(guarded: Guarded) -> list[tuple[str, str]]:
    document = (await guarded.edges.http.get("/openapi.json")).json()
    found = [(method.upper(), path) for path, item in document["paths"].items() for method in item]
    assert len(found) > 30
    return [route for route in found if route not in OPEN]


async def test_every_route_refuses_no_token_a_wrong_one_and_one_too_weak(guarded: Guarded) -> None:
    for method, path in [*await routes(guarded), ("GET", "/v1/nothing"), ("POST", "/v1/nothing")]:
        address = path.replace("{", "").replace("}", "")
        for wrong in WRONG:
            await refuses(guarded, method, address, guarded.header(wrong))
        await refuses(guarded, method, address, {}, params={"token": guarded.secrets[Role.ADMIN]})
        for role in weaker(needed(method, path)):
            answer = await guarded.request(method, address, role)
            assert (answer.status_code, answer.json()["error"]["code"]) == (403, "ROLE_TOO_WEAK"), (
                method,
                path,
            )
            assert role.value in answer.json()["error"]["message"]


async def test_a_token_comes_in_one_form_only(guarded: Guarded) -> None:
    admin = guarded.secrets[Role.ADMIN]
    for wrong in ("-", "vk_", "x" * 5000, admin[:-1], f"{admin}x", admin.upper()):
        await refuses(guarded, "GET", "/v1/me", guarded.header(wrong))
    for header in (admin, f"Basic {admin}", f"Token {admin}", f"Bearer: {admin}"):
        await refuses(guarded, "GET", "/v1/me", {"Authorization": header})
    for query in ("token", "access_token", "api_key", "authorization"):
        await refuses(guarded, "GET", "/v1/me", {}, params={query: admin})
    await refuses(guarded, "GET", "/v1/me", {"X-Api-Key": admin, "Cookie": f"token={admin}"})
    for header in (f"bearer {admin}", f"BEARER   {admin}"):
        answer = await guarded.edges.http.get("/v1/me", headers={"Authorization": header})
        assert (answer.status_code, answer.json()["role"]) == (200, "admin")


async def refuses(guarded: Guarded, method: str, path: str, headers: dict[str, str], **more: object) -> None:
    answer = await guarded.edges.http.request(method, path, headers=headers, **more)
    assert (answer.status_code, answer.json()["error"]["code"]) == (401, "UNAUTHENTICATED"), (method, path)
    assert answer.headers["www-authenticate"].startswith("Bearer")


async def test_every_route_lets_in_who_may(guarded: Guarded) -> None:
    # A stream is answered for as long as it is read; these are watched elsewhere.
    streams = {"/v1/watch", "/v1/training_jobs/{id}/watch", "/v1/training_jobs/{id}/logs"}
    for method, path in await routes(guarded):
        if path in streams:
            continue
        answer = await guarded.request(method, path.replace("{", "").replace("}", ""), needed(method, path))
        assert answer.status_code not in (401, 403, 429, 500), (method, path, answer.text)


async def test_health_and_the_documentation_need_none(guarded: Guarded) -> None:
    for path in ("/health", "/openapi.json"):
        for wrong in WRONG:
            assert (await guarded.request("GET", path, wrong)).status_code == 200
        assert (await guarded.request("POST", path, None)).status_code == 401
    health = health_pb2_grpc.HealthStub(guarded.edges.channel)
    answer = await health.Check(health_pb2.HealthCheckRequest(), timeout=10)
    assert answer.status == health_pb2.HealthCheckResponse.SERVING
    watched = health.Watch(health_pb2.HealthCheckRequest(), timeout=10)
    assert (await watched.read()).status == health_pb2.HealthCheckResponse.SERVING
    watched.cancel()


async def methods(guarded: Guarded) -> dict[str, descriptor_pb2.MethodDescriptorProto]:
    """Every method that the server has, as reflection tells."""
    stub = reflection_pb2_grpc.ServerReflectionStub(guarded.edges.channel)
    metadata = guarded.metadata(Role.VIEWER)

    async def ask(request: reflection_pb2.ServerReflectionRequest) -> reflection_pb2.ServerReflectionResponse:
        call = stub.ServerReflectionInfo(metadata=metadata, timeout=30)
        await call.write(request)
        await call.done_writing()
        return await call.read()

    services = await ask(reflection_pb2.ServerReflectionRequest(list_services=""))
    found: dict[str, descriptor_pb2.MethodDescriptorProto] = {}
    for service in services.list_services_response.service:
        if service.name == "grpc.health.v1.Health":
            continue
        answer = await ask(reflection_pb2.ServerReflectionRequest(file_containing_symbol=service.name))
        for data in answer.file_descriptor_response.file_descriptor_proto:
            file = descriptor_pb2.FileDescriptorProto.FromString(data)
            for each in file.service:
                if f"{file.package}.{each.name}" == service.name:
                    found.update({f"/{service.name}/{method.name}": method for method in each.method})
    return found


def call(guarded: Guarded, path: str, who: Role | str | None) -> grpc.aio.UnaryStreamCall:
    """Calls a method of whatever kind, with an empty request."""
    # To a server one message and the end of the stream are the same from either kind of client. grpc.aio's
    # client of a stream loses a status that comes while it writes: INTERNAL takes its place
    # (https://github.com/grpc/grpc/issues/36066).
    return guarded.edges.channel.unary_stream(path)(b"", metadata=guarded.metadata(who), timeout=30)


def needed_by(path: str) -> Role:
    _, service, name = path.split("/")
    if service.endswith("Reflection") or name == "GetCaller":
        return Role.VIEWER
    if service.endswith(".TokenService"):
        return Role.ADMIN
    if name.startswith(READING):
        return Role.VIEWER
    return Role.ADMIN if service.endswith(".RewardServerService") else Role.OPERATOR


async def test_every_method_refuses_no_token_a_wrong_one_and_one_too_weak(guarded: Guarded) -> None:
    found = await methods(guarded)
    assert len(found) > 30
    assert "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo" in found
    for path in [*found, "/plaudit.gateway.v1.TrainingJobService/Nothing", "/some.Service/Nothing"]:
        for wrong in WRONG:
            code = await outcome_of(call(guarded, path, wrong))
            assert code is grpc.StatusCode.UNAUTHENTICATED, path
        if path in found:
            for role in weaker(needed_by(path)):
                assert await outcome_of(call(guarded, path, role)) is grpc.StatusCode.PERMISSION_DENIED, path


async def test_every_method_lets_in_who_may(guarded: Guarded) -> None:
    refused = (
        grpc.StatusCode.UNAUTHENTICATED,
        grpc.StatusCode.PERMISSION_DENIED,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        grpc.StatusCode.INTERNAL,
        grpc.StatusCode.UNKNOWN,
    )
    for path in await methods(guarded):
        code = await outcome_of(call(guarded, path, needed_by(path)))
        assert code not in refused, (path, code)
    assert (
        await outcome_of(call(guarded, "/some.Service/Nothing", Role.VIEWER)) is grpc.StatusCode.UNIMPLEMENTED
    )


@pytest.mark.parametrize("size", [0, 3_000_000])
async def test_a_refused_upload_is_answered_though_its_body_is_still_on_the_way(
    guarded: Guarded, size: int
) -> None:
    answer = await guarded.request(
        "POST", "/v1/datasets", None, files={"file": ("a.jsonl", b"x" * size)}, data={"name": "a"}
    )
    assert answer.status_code == 401


async def test_a_token_is_sent_once(guarded: Guarded) -> None:
    admin = guarded.header(Role.ADMIN)["Authorization"]
    twice = [("Authorization", admin), ("Authorization", admin)]
    assert (await guarded.edges.http.get("/v1/me", headers=twice)).status_code == 401
    stub = guarded.edges.channel.unary_stream("/plaudit.gateway.v1.TokenService/GetCaller")
    metadata = (("authorization", admin), ("authorization", admin))
    assert await outcome_of(stub(b"", metadata=metadata, timeout=10)) is grpc.StatusCode.UNAUTHENTICATED


async def test_many_refusals_do_not_lock_out_who_has_a_token(guarded: Guarded) -> None:
    wrong = [guarded.request("GET", "/v1/me", "vk_wrong") for _ in range(200)]
    right = [guarded.request("GET", "/v1/me", Role.VIEWER) for _ in range(20)]
    answers = await asyncio.gather(*wrong, *right)
    assert {answer.status_code for answer in answers[200:]} == {200}
