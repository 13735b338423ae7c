"""The servers under examples/, as their readers run them."""

from __future__ import annotations

import ast
import asyncio
import json
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from score_conversation import Conversation, batch, group

from plaudit.reward.v1 import reward_service_pb2 as pb
from plaudit.reward.v1 import reward_service_pb2_grpc as pb_grpc
from plaudit.rpc import open_channel

ROOT = Path(__file__).resolve().parents[3]
MINIMAL = ROOT / "examples/python/minimal_reward_server.py"
KIT = ROOT / "examples/python/kit_reward_server.py"
PATIENCE_SECONDS = 30.0


@pytest.fixture
async def minimal(tmp_path: Path) -> AsyncIterator[str]:
    """Follows protos/README.md in an empty folder; the address of the server that results."""
    shutil.copy(ROOT / "protos/plaudit/reward/v1/reward_service.proto", tmp_path)
    shutil.copy(MINIMAL, tmp_path)
    generate = ["-m", "grpc_tools.protoc", "-I.", "--python_out=.", "--grpc_python_out=."]
    subprocess.run([sys.executable, *generate, "reward_service.proto"], cwd=tmp_path, check=True, timeout=60)
    process = await asyncio.create_subprocess_exec(
        sys.executable, MINIMAL.name, "127.0.0.1:0", cwd=tmp_path, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    line = await asyncio.wait_for(process.stdout.readline(), PATIENCE_SECONDS)
    yield f"127.0.0.1:{int(line.split()[1])}"
    process.kill()
    await process.wait()


def test_the_minimal_server_is_40_lines_without_plaudit() -> None:
    source = MINIMAL.read_text()
    assert len(source.splitlines()) <= 40
    imported = {
        (node.module if isinstance(node, ast.ImportFrom) else alias.name) or ""
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    assert imported == {"sys", "concurrent.futures", "grpc", "reward_service_pb2", "reward_service_pb2_grpc"}


async def test_the_minimal_server_honours_the_contract(minimal: str) -> None:
    async with open_channel(minimal) as channel:
        info = await pb_grpc.RewardServiceStub(channel).GetServerInfo(pb.GetServerInfoRequest(), timeout=20)
        assert (info.min_protocol_version, info.max_protocol_version) == (1, 1)
        assert [reward.name for reward in info.rewards] == ["correct"]
        talk = Conversation(channel)
        assert (await talk.open("correct")).max_in_flight_completions >= 1
        await talk.call.write(pb.ScoreRequest.FromString(b"\xa2\x06\x00"))  # a frame of the future
        completions = ["<answer>12</answer>", "<answer> 12 </answer>", "<answer>13</answer>", "12", ""]
        await talk.send(batch("a", group(completions, answer=12), group(["<answer>4</answer>"], 5, answer=4)))
        await talk.close()
        assert talk.values("a") == {"0": 1.0, "1": 1.0, "2": 0.0, "3": 0.0, "4": 0.0, "5": 1.0}
        assert talk.done["a"].scored_count == 6
        assert talk.frames == ["opened", *["results"] * 6, "done"]
        assert [result.completion_id for result in talk.results] == ["5", "4", "3", "2", "1", "0"]


async def test_the_example_of_the_kit_serves_its_rewards() -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(KIT),
        "--address",
        "127.0.0.1:0",
        "--die-with-stdin",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    address = json.loads(await asyncio.wait_for(process.stdout.readline(), PATIENCE_SECONDS))["address"]
    async with open_channel(address) as channel:
        talk = Conversation(channel)
        await talk.open("within_length", "distance", within_length='{"max_words": 3}')
        await talk.send(batch("a", group(["it is 9.", "it is about 12", ""], answer=12)))
        await talk.close()
        found = {(r.reward_key, r.completion_id): r.score.value for r in talk.results}
        assert found == {
            ("within_length", "0"): 1.0,
            ("within_length", "1"): 0.0,
            ("within_length", "2"): 1.0,
            ("distance", "0"): -0.25,
            ("distance", "1"): 0.0,
            ("distance", "2"): -1.0,
        }
    process.stdin.close()
    assert await asyncio.wait_for(process.wait(), PATIENCE_SECONDS) == 0
