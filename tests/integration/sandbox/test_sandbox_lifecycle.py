"""Workers live and die with their server, and there is a way without bubblewrap, which must be asked for."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import grpc
import psutil
import pytest
from sandbox_server import PATIENCE_SECONDS, SandboxServer, needs_bwrap, selection, serving, told

from plaudit.errors import InvalidArgumentError
from plaudit.reward.v1 import reward_service_pb2 as pb
from plaudit.reward.v1 import reward_service_pb2_grpc as pb_grpc
from plaudit.rpc import error_from_rpc, open_channel

CONSTANT = "def reward(completions):\n    return [1.0 for _ in completions]\n"
HANGING = "import time\ndef reward(completions):\n    time.sleep(3600)\n"


def processes_of(server: SandboxServer) -> list[psutil.Process]:
    return psutil.Process(server.process.pid).children(recursive=True)


async def gone(processes: list[psutil.Process]) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while any(process.is_running() and process.status() != "zombie" for process in processes):  # noqa: ASYNC110 (what is waited for knows no event)
            await asyncio.sleep(0.02)


@needs_bwrap
async def test_workers_die_with_a_server_that_is_killed(tmp_path: Path) -> None:
    with serving(tmp_path, workers=2) as server:
        assert processes_of(server) == []  # nothing is started before it is needed
        assert [told(result) for result in await server.run(CONSTANT, ["a"])] == [("score", 1.0)]
        hanging = asyncio.create_task(server.run(HANGING, ["a"]))
        await asyncio.sleep(0.3)
        workers = processes_of(server)
        assert len(workers) >= 2
        server.process.send_signal(signal.SIGKILL)
        await gone(workers)
        with pytest.raises(grpc.RpcError):
            await hanging


@needs_bwrap
async def test_a_cancelled_call_frees_its_worker(tmp_path: Path) -> None:
    """One worker: the second session is answered only if the call of the first, which never ends, was."""
    with serving(tmp_path, workers=1) as server:
        async with open_channel(server.address) as channel:
            stub = pb_grpc.RewardServiceStub(channel)
            batch = pb.Batch(
                batch_id="b",
                groups=[
                    pb.PromptGroup(
                        group_id="g",
                        prompt=[pb.Message(role="user", content="Q")],
                        completions=[pb.Completion(completion_id="c", text="t")],
                    )
                ],
            )
            chosen = selection(HANGING, timeout_seconds=600.0)
            request = pb.ScoreOnceRequest(rewards=[chosen], batch=batch)
            answer = await stub.ScoreOnce(request, timeout=1.5)
        assert told(answer.results[0])[0] == "CODE_TIMEOUT"
        assert [told(result) for result in await server.run(CONSTANT, ["a"])] == [("score", 1.0)]


@needs_bwrap
async def test_one_function_that_hangs_leaves_a_worker_to_others(tmp_path: Path) -> None:
    with serving(tmp_path, workers=3) as server:
        hanging = asyncio.create_task(server.run(HANGING, ["a"] * 20, timeout_seconds=600.0))
        while len(processes_of(server)) < 3:  # noqa: ASYNC110 (what is waited for knows no event)
            await asyncio.sleep(0.05)
        for _ in range(3):
            assert [told(result) for result in await server.run(CONSTANT, ["a"])] == [("score", 1.0)]
        assert not hanging.done()
        hanging.cancel()
        await asyncio.wait([hanging])


async def test_without_bubblewrap_the_session_is_refused(tmp_path: Path) -> None:
    with serving(tmp_path, bwrap="no-such-bwrap") as server, pytest.raises(grpc.RpcError) as caught:
        await server.run(CONSTANT, ["a"])
    error = error_from_rpc(caught.value)
    assert isinstance(error, InvalidArgumentError)
    [violation] = error.violations
    assert violation.field == "rewards[0].config"
    assert "apt-get install bubblewrap" in violation.message
    assert "allow_unsandboxed = true" in violation.message


async def test_where_namespaces_are_refused_it_says_so(tmp_path: Path) -> None:
    refusing = tmp_path / "bwrap"
    refusing.write_text("#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2\nexit 1\n")
    refusing.chmod(0o755)
    tmp_path.chmod(0o755)
    with serving(tmp_path, bwrap=str(refusing)) as server, pytest.raises(grpc.RpcError) as caught:
        await server.run(CONSTANT, ["a"])
    message = error_from_rpc(caught.value).message
    assert "No permissions to create new namespace" in message
    assert "kernel.unprivileged_userns_clone=1" in message


async def test_unsandboxed_code_is_warned_of_and_limited(tmp_path: Path) -> None:
    with serving(tmp_path, bwrap="no-such-bwrap", allow_unsandboxed=True, memory_mb=512, workers=2) as server:
        text = """
import os, signal
def reward(completions):
    c = completions[0]
    if c == "uid": return [float(os.getuid())]
    if c == "environment": return [float("SERVER_SECRET" in os.environ)]
    if c == "memory": return [float(len(bytearray(10 << 30)))]
    if c == "loop":
        while True: pass
    if c == "fork":
        while True:
            if os.fork() == 0: signal.pause()
    return [1.0]
"""
        results = await server.run(
            text, ["good", "uid", "environment", "memory", "loop", "fork", "good"], timeout_seconds=2.0
        )
        answers = [told(result) for result in results]
        assert answers[0] == answers[6] == ("score", 1.0)
        assert answers[2] == ("score", 0.0)
        if os.getuid() == 0:
            assert float(str(answers[1][1])) >= 61_000
        assert "MemoryError" in str(answers[3][1])
        assert answers[4][0] == "CODE_TIMEOUT"
        assert "Resource temporarily unavailable" in str(answers[5][1])
        await server.wait_for_log(
            "reward code runs without a sandbox, and can read files and use the network", "no-such-bwrap"
        )
        workers = processes_of(server)
    await gone(workers)
