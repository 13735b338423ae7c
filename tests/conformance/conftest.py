"""Real reward servers as processes."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from conformance_process import Served

ROOT = Path(__file__).resolve().parents[2]
MINIMAL = ROOT / "examples/python/minimal_reward_server.py"
START_SECONDS = 40.0


@pytest.fixture
async def builtin() -> AsyncIterator[Served]:
    """The built-in reward server."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "reward_service", "--address", "127.0.0.1:0", "--die-with-stdin"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    assert process.stdout is not None
    line = await asyncio.wait_for(process.stdout.readline(), START_SECONDS)
    yield Served(json.loads(line)["address"], process)
    if process.returncode is None:
        process.kill()
    await process.wait()


@pytest.fixture
async def minimal(tmp_path: Path) -> AsyncIterator[Served]:
    """The server of 40 lines, generated from the proto file in an empty folder with grpcio alone."""
    shutil.copy(ROOT / "protos/plaudit/reward/v1/reward_service.proto", tmp_path)
    shutil.copy(MINIMAL, tmp_path)
    generate = ["-m", "grpc_tools.protoc", "-I.", "--python_out=.", "--grpc_python_out=."]
    subprocess.run([sys.executable, *generate, "reward_service.proto"], cwd=tmp_path, check=True, timeout=60)
    process = await asyncio.create_subprocess_exec(
        sys.executable, MINIMAL.name, "127.0.0.1:0", cwd=tmp_path, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    line = await asyncio.wait_for(process.stdout.readline(), START_SECONDS)
    yield Served(f"127.0.0.1:{int(line.split()[1])}", process)
    process.kill()
    await process.wait()
