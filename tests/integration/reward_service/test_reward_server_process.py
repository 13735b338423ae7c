"""The built-in server as a process: start, health, reflection, drain, death with its parent."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from score_conversation import Conversation, batches_of, details_of, eventually, texts

from plaudit.reward.v1 import reward_service_pb2 as pb
from plaudit.reward.v1 import reward_service_pb2_grpc as pb_grpc
from plaudit.rpc import open_channel

SERVICE = "plaudit.reward.v1.RewardService"
PATIENCE_SECONDS = 30.0
SLOW_SERVER = """
import asyncio
from reward_service import Item, reward, serve

@reward(name="slow", description="Takes long.")
async def slow(item: Item) -> float:
    await asyncio.sleep(float(item.text))
    return 1.0

if __name__ == "__main__":
    serve([slow], name="slow", version="1")
"""

OPENING_SERVER = """
import sys
from contextlib import asynccontextmanager
from pathlib import Path
from reward_service import Item, reward, serve

log = Path(sys.argv.pop())

@asynccontextmanager
async def rewards():
    with log.open("w") as file:
        print("opened", file=file, flush=True)

        @reward(name="noted", description="Notes the text.")
        async def noted(item: Item) -> float:
            print(item.text, file=file, flush=True)
            return 1.0

        yield [noted]
        print("closed", file=file)

if __name__ == "__main__":
    serve(rewards)
"""

Start = Callable[..., Awaitable[tuple[asyncio.subprocess.Process, str]]]


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    """Starts a process and returns it with the address that it prints."""
    processes: list[asyncio.subprocess.Process] = []

    async def run(*arguments: str, **environment: str) -> tuple[asyncio.subprocess.Process, str]:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, **environment},
        )
        processes.append(process)
        assert process.stdout is not None
        line = await asyncio.wait_for(process.stdout.readline(), PATIENCE_SECONDS)
        if not line:
            return process, ""
        told = json.loads(line)
        assert told["service"] == "reward"
        return process, told["address"]

    yield run
    for process in processes:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def left(process: asyncio.subprocess.Process) -> int:
    return await asyncio.wait_for(process.wait(), PATIENCE_SECONDS)


async def test_the_builtin_server_scores_and_is_described(start: Start) -> None:
    process, address = await start("-m", "reward_service", "--address", "127.0.0.1:0")
    async with open_channel(address) as channel:
        info = await pb_grpc.RewardServiceStub(channel).GetServerInfo(pb.GetServerInfoRequest(), timeout=20)
        assert info.server_name == "plaudit-builtin"
        ranges = {reward.name: (reward.min_value, reward.max_value) for reward in info.rewards}
        assert (
            ranges.items()
            >= {
                "format_check": (0.0, 1.0),
                "exact_answer": (0.0, 1.0),
                "math_answer": (0.0, 1.0),
                "length_penalty": (-1.0, 0.0),
                "repetition_penalty": (-1.0, 0.0),
            }.items()
        )
        columns = {reward.name: list(reward.required_columns) for reward in info.rewards}
        assert columns["exact_answer"] == columns["math_answer"] == ["answer"]
        assert columns["format_check"] == columns["length_penalty"] == []
        for reward in info.rewards:
            assert json.loads(reward.config_schema_json)["type"] == "object"
        health = await health_pb2_grpc.HealthStub(channel).Check(
            health_pb2.HealthCheckRequest(service=SERVICE), timeout=20
        )
        assert health.status == health_pb2.HealthCheckResponse.SERVING
        assert SERVICE in await services(channel)
        talk = Conversation(channel)
        await talk.open(
            "format_check",
            "exact_answer",
            "length_penalty",
            length_penalty='{"soft_limit": 1, "hard_limit": 3}',
        )
        sent = texts("a", "<think>5 + 7</think><answer>12</answer>")
        sent.groups[0].columns["answer"].int_value = 12
        sent.groups[0].completions[0].token_count = 2
        await talk.send(sent)
        await talk.close()
        values = {r.reward_key: r.score.value for r in talk.results}
        assert values == {"format_check": 1.0, "exact_answer": 1.0, "length_penalty": -0.5}
    process.send_signal(signal.SIGTERM)
    assert await left(process) == 0


async def services(channel: grpc.aio.Channel) -> list[str]:
    stub = reflection_pb2_grpc.ServerReflectionStub(channel)
    async for answer in stub.ServerReflectionInfo(
        iter([reflection_pb2.ServerReflectionRequest(list_services="")]), timeout=20
    ):
        return [service.name for service in answer.list_services_response.service]
    raise AssertionError("no answer")


async def test_it_dies_with_its_parent(start: Start) -> None:
    process, _ = await start("-m", "reward_service", "--address", "127.0.0.1:0", "--die-with-stdin")
    assert process.stdin is not None
    process.stdin.close()
    assert await left(process) == 0


async def test_settings_come_from_variables_and_wrong_ones_are_named(start: Start) -> None:
    process, address = await start("-m", "reward_service", PLAUDIT_REWARD_ADDRESS="127.0.0.1:0")
    assert address
    process.send_signal(signal.SIGINT)
    assert await left(process) == 0
    process, _ = await start(
        "-m", "reward_service", "--address", "0.0.0.0:0", PLAUDIT_REWARD_DRAIN_GRACE_SECONDS="-1"
    )
    assert await left(process) == 2
    assert process.stderr is not None
    told = await process.stderr.read()
    assert b"reward.drain_grace_seconds" in told
    assert b"reward.address" in told
    assert b"needs a certificate" in told


async def test_a_taken_port_is_told_without_a_traceback(start: Start) -> None:
    _, address = await start("-m", "reward_service", "--address", "127.0.0.1:0")
    process, _ = await start("-m", "reward_service", "--address", address)
    assert await left(process) == 1
    assert process.stderr is not None
    told = (await process.stderr.read()).decode()
    assert f"cannot listen on {address}" in told
    assert "Traceback" not in told


async def test_sigterm_serves_what_was_accepted_and_takes_no_more(start: Start, tmp_path: Path) -> None:
    script = tmp_path / "slow_server.py"
    script.write_text(SLOW_SERVER)
    process, address = await start(str(script), "--address", "127.0.0.1:0")
    async with open_channel(address) as channel:
        talk = Conversation(channel)
        await talk.open("slow")
        await talk.send(texts("a", "0.0", "3.0"))
        while not talk.results:
            await talk.read()
        process.send_signal(signal.SIGTERM)
        frame = await talk.read()
        assert frame is not None
        assert frame.draining.grace.ToSeconds() == 10
        await talk.send(texts("late", "0.0"), texts("a", "0.0", "3.0"))
        error = await talk.ending()
        assert talk.codes("a") == {"0": "score", "1": "score"}
        assert talk.done["a"].scored_count == 2
        failure = talk.rejected["late"]
        assert failure.code == pb.Failure.CODE_UNAVAILABLE
        assert failure.retry_delay.ToSeconds() > 0
        assert error.code() is grpc.StatusCode.UNAVAILABLE
        assert details_of(error)["reason"] == "DRAINING"
    assert await left(process) == 0


async def test_what_rewards_hold_is_opened_and_closed_with_the_server(start: Start, tmp_path: Path) -> None:
    script, log = tmp_path / "opening_server.py", tmp_path / "log"
    script.write_text(OPENING_SERVER)
    process, address = await start(str(script), "--address", "127.0.0.1:0", str(log))
    assert log.read_text() == "opened\n"
    async with open_channel(address) as channel:
        talk = Conversation(channel)
        await talk.open("noted")
        await talk.send(texts("a", "x"))
        await talk.close()
    process.send_signal(signal.SIGTERM)
    assert await left(process) == 0
    assert log.read_text() == "opened\nx\nclosed\n"


async def test_after_the_grace_streams_end_and_the_work_is_dropped(serve: Any) -> None:
    from reward_service import Item, reward

    ended: list[str] = []

    @reward(name="slow", description="Takes long.")
    async def slow(item: Item) -> float:
        try:
            await asyncio.sleep(60)
        finally:
            ended.append(item.text)
        return 1.0

    channel = await serve(slow)
    busy, idle, closing = Conversation(channel), Conversation(channel), Conversation(channel)
    for talk in (busy, idle, closing):
        await talk.open("slow")
    await busy.send(texts("a", "x"))
    await closing.send(texts("b", "y"))
    await closing.call.done_writing()
    health = health_pb2_grpc.HealthStub(channel)
    await eventually(lambda: len(batches_of(serve)) == 2)
    stopping = asyncio.create_task(serve.last.stop(2.5))
    # An idle stream has nothing to wait for.
    error = await idle.ending()
    assert error.code() is grpc.StatusCode.UNAVAILABLE
    assert idle.frames[-1] == "draining"
    answer = await health.Check(health_pb2.HealthCheckRequest(service=SERVICE), timeout=10)
    assert answer.status == health_pb2.HealthCheckResponse.NOT_SERVING
    refused = Conversation(channel)
    await refused.call.write(
        pb.ScoreRequest(
            open=pb.SessionOpen(
                session_id="new", protocol_version=1, rewards=[pb.RewardSelection(key="s", name="slow")]
            )
        )
    )
    assert (await refused.ending()).code() is grpc.StatusCode.UNAVAILABLE
    assert (await busy.ending()).code() is grpc.StatusCode.UNAVAILABLE
    assert (await closing.ending()).code() is grpc.StatusCode.UNAVAILABLE
    await asyncio.wait_for(stopping, PATIENCE_SECONDS)
    assert sorted(ended) == ["x", "y"]
