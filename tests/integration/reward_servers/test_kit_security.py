"""The kit's own server and the built-in one: what they refuse to do, and who is let in."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from secured import TOKEN, Keys, half, kit_server

from plaudit.reward.v1 import reward_service_pb2 as pb
from plaudit.reward.v1 import reward_service_pb2_grpc as pb_grpc
from plaudit.rpc import ListenSecurity, open_channel
from reward_service import RewardServer, ServerLimits

SCRIPT = """
from reward_service import Item, ListenSecurity, reward, serve


@reward()
async def half(item: Item) -> float:
    "Half for everyone."
    return 0.5


serve([half]{security})
"""


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A server that is expected not to start, or to end with its stdin."""
    return subprocess.run(
        [sys.executable, *arguments, "--die-with-stdin"],
        env={**os.environ, **environment}, capture_output=True, text=True, timeout=60,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip


@pytest.fixture(params=["built-in", "kit"])
def program(request: pytest.FixtureRequest, tmp_path: Path) -> Sequence[str]:
    """Both ways to start a server from the command line."""
    if request.param == "built-in":
        return ("-m", "reward_service")
    script = tmp_path / "server.py"
    script.write_text(SCRIPT.format(security=""))
    return (str(script),)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ([], "a certificate (tls_cert, tls_key)"),
        (["--plaintext"], "a token (token_file)"),
        (["--tls-cert", "c.pem"], "tls_cert and tls_key go together"),
    ],
)
def test_beyond_loopback_it_does_not_start_without(
    program: Sequence[str], options: list[str], told: str
) -> None:
    done = run(*program, "--address", "0.0.0.0:0", *options)
    assert done.returncode in (1, 2)
    assert told in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_beyond_loopback_it_starts_with_a_certificate_and_a_token(program: Sequence[str], keys: Keys) -> None:
    done = run(*program, "--address", "0.0.0.0:0", *keys.options())
    assert done.returncode == 0, done.stderr
    assert '"address": "0.0.0.0:' in done.stdout
    token = ["--token-file", f"{keys.folder}/tokens", "--plaintext"]
    done = run(*program, "--address", "0.0.0.0:0", *token)
    assert done.returncode == 0, done.stderr


def test_a_program_and_the_settings_say_the_same(tmp_path: Path, keys: Keys) -> None:
    script = tmp_path / "server.py"
    security = f", security=ListenSecurity(token_file={str(keys.folder / 'tokens')!r}, plaintext=True)"
    script.write_text(SCRIPT.format(security=security))
    assert run(str(script), "--address", "0.0.0.0:0").returncode == 0
    script.write_text(SCRIPT.format(security=", security=ListenSecurity(token_file='/nowhere')"))
    done = run(str(script), "--address", "127.0.0.1:0")
    assert done.returncode == 1
    assert "the file of tokens: /nowhere cannot be read" in done.stderr
    config = tmp_path / "plaudit.toml"
    told = '[reward]\naddress = "0.0.0.0:0"\n[reward.security]\nplaintext = true\n'
    config.write_text(f'{told}token_file = "{keys.folder}/tokens"\n')
    assert run("-m", "reward_service", PLAUDIT_CONFIG=str(config)).returncode == 0
    config.write_text(told)
    done = run("-m", "reward_service", PLAUDIT_CONFIG=str(config))
    assert done.returncode == 2
    assert "reward.address" in done.stderr
    assert "a token (token_file) or the CA of its clients" in done.stderr


async def status_of(channel: grpc.aio.Channel, *metadata: tuple[str, str]) -> tuple[str, str]:
    stub = pb_grpc.RewardServiceStub(channel)
    try:
        await stub.GetServerInfo(pb.GetServerInfoRequest(), metadata=metadata, timeout=20)
    except grpc.aio.AioRpcError as error:
        return error.code().name, error.details() or ""
    return "OK", ""


async def test_every_call_but_health_needs_a_token(keys: Keys) -> None:
    async with (
        kit_server(ListenSecurity(token_file=keys.folder / "tokens")) as address,
        open_channel(address) as channel,
    ):
        assert (await status_of(channel, ("authorization", f"Bearer {TOKEN}")))[0] == "OK"
        assert (await status_of(channel, ("authorization", f"bearer  {TOKEN}")))[0] == "OK"
        assert (await status_of(channel, ("authorization", "Bearer some-other-token-too")))[0] == "OK"
        code, told = await status_of(channel)
        assert (code, "send it as `authorization: Bearer TOKEN`" in told) == ("UNAUTHENTICATED", True)
        for given in (
            "Bearer",
            "Bearer ",
            f"Basic {TOKEN}",
            TOKEN,
            f"Bearer {TOKEN}x",
            f"Bearer {TOKEN[:-1]}",
        ):
            code, told = await status_of(channel, ("authorization", given))
            assert (code, "none that this server knows" in told) == ("UNAUTHENTICATED", True), given
            assert TOKEN not in told
        call = pb_grpc.RewardServiceStub(channel).Score(timeout=20)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await call.read()
        assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
        reflected = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo(
            iter([reflection_pb2.ServerReflectionRequest(list_services="")]), timeout=20
        )
        with pytest.raises(grpc.aio.AioRpcError):
            async for _ in reflected:
                pass
        health = await health_pb2_grpc.HealthStub(channel).Check(
            health_pb2.HealthCheckRequest(service="plaudit.reward.v1.RewardService"), timeout=20
        )
        assert health.status == health_pb2.HealthCheckResponse.SERVING


async def test_health_answers_while_every_session_is_taken() -> None:
    server = RewardServer([half()], limits=ServerLimits(max_sessions=3))
    port = await server.start()
    try:
        async with open_channel(f"127.0.0.1:{port}") as channel:
            stub = pb_grpc.RewardServiceStub(channel)
            calls = []
            for number in range(4):
                call = stub.Score(timeout=60)
                session = pb.SessionOpen(
                    session_id=f"00000000-0000-4000-8000-00000000000{number}",
                    protocol_version=1,
                    rewards=[pb.RewardSelection(key="half", name="half")],
                )
                await call.write(pb.ScoreRequest(open=session))
                calls.append(call)
            for call in calls[:3]:
                assert (await call.read()).WhichOneof("frame") == "opened"
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await calls[3].read()
            assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            health = await health_pb2_grpc.HealthStub(channel).Check(
                health_pb2.HealthCheckRequest(), timeout=20
            )
            assert health.status == health_pb2.HealthCheckResponse.SERVING
            assert (await status_of(channel))[0] == "OK"
            for call in calls:
                call.cancel()
    finally:
        await server.stop(0.0)
