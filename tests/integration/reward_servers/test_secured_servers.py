"""TLS, client certificates and tokens: who is let in, and what those hear who are not."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import grpc
import pytest
from edges import Edges, open_edges
from secured import Keys, kit_server

from gateway.rewards import Registration, RewardServerRegistry
from gateway.store import Store
from plaudit.errors import AlreadyExistsError, InvalidArgumentError
from plaudit.gateway.v1 import reward_server_service_pb2 as pb
from plaudit.rpc import Credentials, ListenSecurity
from plaudit.scoring._connection import LostError, RefusedError, connect
from plaudit.service import Secrets
from plaudit.types.access import ServerAccess

TLS = {"ca": "judge", "server_name": "judge.example"}
MUTUAL = {**TLS, "client_certificate": "trainer"}


def access_of(fields: Mapping[str, Any]) -> ServerAccess:
    return ServerAccess.model_validate(fields)


async def asked(secrets: Secrets, folder: Path, address: str, fields: Mapping[str, Any]) -> pb.RewardServer:
    """The server as the gateway finds it once it is registered."""
    async with open_edges(folder, secrets=secrets) as edges:
        return await register(edges, address, fields)


async def register(edges: Edges, address: str, fields: Mapping[str, Any]) -> pb.RewardServer:
    tls = fields.get("tls")
    return await edges.reward_servers.CreateRewardServer(
        pb.CreateRewardServerRequest(
            reward_server=pb.RewardServer(
                name="judge",
                addresses=[address],
                tls=pb.RewardServerTls(**tls) if tls is not None else None,
                credential=fields.get("credential", ""),
                plaintext=fields.get("plaintext", False),
            )
        )
    )


async def dialled(secrets: Secrets, address: str, fields: Mapping[str, Any]) -> str:
    """What a trainer says of the same server: "" where it gets a description."""
    try:
        connection = await connect(
            address,
            lambda: Credentials.load(access_of(fields), secrets),
            10.0,
            relaxed_keepalive=False,
        )
    except LostError as lost:
        return str(lost)
    except RefusedError as refused:
        return f"{refused.failure.code().name}: {refused.failure.details()}"
    await connection.channel.close()
    assert connection.info.server_name == "judge"
    return ""


LET_IN = [
    ("a certificate for its name", {}, {"tls": TLS}),
    ("a certificate and a token", {"token": True}, {"tls": TLS, "credential": "judge"}),
    ("certificates on both sides", {"mutual": True}, {"tls": MUTUAL}),
    ("both, and a token", {"mutual": True, "token": True}, {"tls": MUTUAL, "credential": "judge"}),
    ("a certificate for its IP address", {"certificate": "by-address"}, {"tls": {"ca": "judge"}}),
]


@pytest.mark.parametrize(
    ("server", "fields"), [case[1:] for case in LET_IN], ids=[case[0] for case in LET_IN]
)
async def test_who_is_let_in(
    keys: Keys, tmp_path: Path, server: dict[str, Any], fields: dict[str, Any]
) -> None:
    async with kit_server(keys.server(**server)) as address:
        made = await asked(keys.secrets, tmp_path, address, fields)
        assert (made.reachable, made.unreachable_reason) == (True, "")
        assert made.server_version == "judge 1"
        assert [(r.address, r.state) for r in made.replicas] == [
            (address, pb.RewardServerReplica.STATE_SERVING)
        ]
        assert await dialled(keys.secrets, address, fields) == ""


REFUSED = [
    ("another CA", {}, {"tls": {**TLS, "ca": "stranger"}}, r'not signed by CA "stranger".*tls\.ca'),
    ("no CA named", {}, {"tls": {"server_name": "judge.example"}}, r"not signed by any CA of this machine"),
    ("expired", {"certificate": "old"}, {"tls": TLS}, r"certificate has expired; give the server a new one"),
    ("another name", {}, {"tls": {"ca": "judge"}}, r"is not for 127\.0\.0\.1; .*tls\.server_name"),
    (
        "no client certificate",
        {"mutual": True},
        {"tls": TLS},
        r"asks for a client certificate; register it with",
    ),
    (
        "a stranger's certificate",
        {"mutual": True},
        {"tls": {**TLS, "client_certificate": "stranger"}},
        r'refuses the client certificate "stranger"; have it signed',
    ),
    ("no token", {"token": True}, {"tls": TLS}, r"token, and none was sent.*Bearer TOKEN"),
    (
        "a stale token",
        {"token": True},
        {"tls": TLS, "credential": "stale"},
        r"the token is none that this server knows; give the credential the token",
    ),
    ("plain text", {}, {}, r"it speaks TLS, and it is registered for plain text; register it with tls"),
]


@pytest.mark.parametrize(
    ("server", "fields", "told"), [case[1:] for case in REFUSED], ids=[case[0] for case in REFUSED]
)
async def test_who_is_not_let_in_hears_what_to_do(
    keys: Keys, tmp_path: Path, server: dict[str, Any], fields: dict[str, Any], told: str
) -> None:
    async with kit_server(keys.server(**server)) as address:
        made = await asked(keys.secrets, tmp_path, address, fields)
        assert not made.reachable
        assert re.search(told, made.unreachable_reason), made.unreachable_reason
        assert address in made.unreachable_reason
        by_trainer = await dialled(keys.secrets, address, fields)
        assert re.search(told, by_trainer), by_trainer
    token_matters = "token" in server
    state = made.replicas[0].state
    assert state == (
        pb.RewardServerReplica.STATE_NOT_SERVING
        if token_matters
        else pb.RewardServerReplica.STATE_UNREACHABLE
    )
    if fields.get("credential"):
        assert 'refuses the token of credential "stale"' in made.unreachable_reason


async def test_tls_towards_a_server_in_plain_text_is_told(keys: Keys, tmp_path: Path) -> None:
    async with kit_server() as address:
        made = await asked(keys.secrets, tmp_path, address, {"tls": TLS})
        assert "it does not speak TLS" in made.unreachable_reason
        assert "register it without tls" in made.unreachable_reason
        assert "it does not speak TLS" in await dialled(keys.secrets, address, {"tls": TLS})


async def test_a_token_is_enough_on_loopback_and_any_caller_without_is_refused(
    keys: Keys, tmp_path: Path
) -> None:
    async with kit_server(ListenSecurity(token_file=keys.folder / "tokens")) as address:
        made = await asked(keys.secrets, tmp_path, address, {"credential": "judge"})
        assert made.reachable
        assert await dialled(keys.secrets, address, {"credential": "judge"}) == ""
        assert "UNAUTHENTICATED" in await dialled(keys.secrets, address, {})


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        (
            {"credential": "nobody"},
            r'credential "nobody" is missing here: set PLAUDIT_CREDENTIAL_NOBODY, or write .*nobody',
        ),
        ({"tls": {"ca": "nobody"}}, r'CA "nobody" is missing here: write .*nobody\.ca\.pem'),
        (
            {"tls": {"client_certificate": "nobody"}},
            r'client certificate "nobody" is missing here: .*nobody\.cert\.pem',
        ),
    ],
)
async def test_a_missing_secret_is_told_by_its_name_and_nothing_is_dialled(
    keys: Keys, tmp_path: Path, fields: dict[str, Any], told: str
) -> None:
    made = await asked(keys.secrets, tmp_path, "127.0.0.1:1", fields)
    assert re.search(told, made.unreachable_reason), made.unreachable_reason
    assert "was not dialled" in made.unreachable_reason
    assert re.search(told, await dialled(keys.secrets, "127.0.0.1:1", fields))


async def test_registrations_say_how_a_server_is_spoken_to_in_both_languages(
    keys: Keys, tmp_path: Path
) -> None:
    async with (
        open_edges(tmp_path, secrets=keys.secrets) as edges,
        kit_server(keys.server(mutual=True)) as address,
    ):
        body = {"name": "judge", "addresses": [address], "tls": MUTUAL, "credential": "judge"}
        made = (await edges.http.post("/v1/reward_servers", json=body)).json()
        assert made["reachable"] is True
        assert made["tls"] == MUTUAL
        assert (made["credential"], made["plaintext"]) == ("judge", False)
        assert made["warnings"] == []
        replica = made["replicas"][0]
        assert (replica["address"], replica["state"], replica["reason"]) == (address, "serving", None)
        assert replica["server_version"] == "judge 1"
        assert 0 < replica["latency_seconds"] < 60
        assert replica["since"] <= replica["checked_at"]
        same = await register(edges, address, {"tls": MUTUAL, "credential": "judge"})
        assert same.id == made["id"]
        assert (same.tls.ca, same.tls.client_certificate, same.tls.server_name) == (
            "judge",
            "trainer",
            "judge.example",
        )
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await register(edges, address, {"tls": TLS, "credential": "judge"})
        assert caught.value.code() is grpc.StatusCode.ALREADY_EXISTS
        assert "spoken to in another way" in (caught.value.details() or "")
        text = json.dumps((await edges.http.get("/v1/reward_servers")).json())
        assert "correct-horse" not in text


async def test_what_does_not_go_together_is_refused_at_once(tmp_path: Path) -> None:
    async with open_edges(tmp_path) as edges:

        async def fields_of(**given: object) -> dict[str, str]:
            body = {"name": "judge", "addresses": ["10.0.0.5:50061"], **given}
            answer = await edges.http.post("/v1/reward_servers", json=body)
            assert answer.status_code == 422
            return {e["param"]: e["message"] for e in answer.json()["error"]["errors"]}

        told = await fields_of(credential="judge")
        assert list(told) == ["credential"]
        assert "in plain text to 10.0.0.5:50061" in told["credential"]
        assert "add tls, or say plaintext = true" in told["credential"]
        assert list(await fields_of(credential="judge", plaintext=True, tls={})) == ["plaintext"]
        secret = await fields_of(
            credential="Bearer abcdef", tls={"ca": "-----BEGIN", "server_name": "a b", "x": 1}
        )
        assert sorted(secret) == ["credential", "tls.ca", "tls.server_name", "tls.x"]
        assert "a secret is named here, not held" in secret["credential"]
        answer = await edges.http.post(
            "/v1/reward_servers",
            json={"name": "judge", "addresses": ["10.255.255.1:9"], "credential": "judge", "plaintext": True},
        )
        assert answer.status_code == 200


async def test_no_token_goes_in_plain_text_where_a_name_leads_off_this_machine(
    keys: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    import asyncio

    async def resolve(host: str, port: int, **kwargs: object) -> list[object]:
        return [(2, 1, 6, "", ("10.0.0.9", port))]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", resolve)
    told = await dialled(keys.secrets, "localhost:1", {"credential": "judge"})
    assert told.startswith('credential "judge" is not sent in plain text to localhost:1')


async def test_settings_say_the_same_as_a_registration(keys: Keys, tmp_path: Path) -> None:
    async with kit_server(keys.server(token=True)) as address, Store.open(tmp_path / "s.sqlite3") as store:
        registry = RewardServerRegistry(store, keys.secrets)
        given = {"addresses": (address,), "tls": TLS, "credential": "judge"}
        try:
            await registry.start({"judge": Registration.model_validate(given)})
            live = await registry.get("judge")
            assert live.description.reachable
            assert live.server.access == access_of({"tls": TLS, "credential": "judge"})
            with pytest.raises(AlreadyExistsError):
                await registry.create("judge", Registration(addresses=(address,)))
            with pytest.raises(InvalidArgumentError) as refused:
                await registry.start({"far": Registration(addresses=("10.0.0.1:1",), credential="judge")})
            assert [v.field for v in refused.value.violations] == ["reward_servers.far.credential"]
        finally:
            await registry.close()


async def test_the_documentation_of_the_interface_holds_together(tmp_path: Path) -> None:
    async with open_edges(tmp_path) as edges:
        document = (await edges.http.get("/openapi.json")).json()
    referred = set(re.findall(r'"\$ref": "([^"]+)"', json.dumps(document)))
    assert "#/components/schemas/NewRewardServer" in referred
    assert "#/components/schemas/TlsAccess" in referred
    known = {f"#/components/schemas/{name}" for name in document["components"]["schemas"]}
    assert referred <= known
