"""`plaudit up`: what dies is started again where it listened, and nothing outlives it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from stack import wait_for

from plaudit import Client

BIN = Path(sys.executable).parent
FREE = "127.0.0.1:0"


@pytest.fixture
def up(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [
            str(BIN / "plaudit"), "up", "--data-dir", str(tmp_path / "data"),
            "--gateway-grpc", FREE, "--gateway-http", FREE, "--trainer", FREE, "--reward", FREE,
        ],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        env={**os.environ, "PLAUDIT_CONFIG": str(tmp_path / "plaudit.toml")},
    )  # fmt: skip
    yield process
    process.kill()
    process.wait()


def services(up: subprocess.Popen[str]) -> dict[str, psutil.Process]:
    """The service processes by module."""
    found = {}
    for child in psutil.Process(up.pid).children():
        command = child.cmdline()
        if "-m" in command:
            found[command[command.index("-m") + 1]] = child
    return found


def test_services_come_back_where_they_were_and_end_with_up(
    up: subprocess.Popen[str], tmp_path: Path
) -> None:
    assert up.stdout is not None
    address = re.search(r"gRPC (\S+)", up.stdout.readline())
    assert address is not None
    with Client(address[1]) as client:
        builtin = client.reward_servers.get("builtin")
        assert builtin.reachable
        assert "exact_answer" in [reward.name for reward in builtin.rewards]

        before = services(up)
        assert set(before) == {"reward_service", "trainer_service", "gateway"}
        before["reward_service"].kill()
        before["gateway"].kill()
        wait_for("the reward server", lambda: client.reward_servers.get("builtin").reachable)
        after = services(up)
        assert after["reward_service"].pid != before["reward_service"].pid
        assert after["trainer_service"].pid == before["trainer_service"].pid
        assert client.reward_servers.get("builtin").addresses == builtin.addresses

    logs = {path.name for path in (tmp_path / "data" / "logs").iterdir()}
    assert logs == {"reward.log", "trainer.log", "gateway.log"}
    processes = list(after.values())
    up.send_signal(signal.SIGTERM)
    assert up.wait(30) == 0
    assert psutil.wait_procs(processes, timeout=1)[1] == []


def test_nothing_outlives_an_up_that_is_killed(up: subprocess.Popen[str]) -> None:
    assert up.stdout is not None
    assert up.stdout.readline().startswith("gateway")
    processes = psutil.Process(up.pid).children(recursive=True)
    assert len(processes) >= 3
    up.kill()
    up.wait()
    assert psutil.wait_procs(processes, timeout=20)[1] == []


def test_a_data_directory_in_use_is_told_and_nothing_is_left_running(
    up: subprocess.Popen[str], tmp_path: Path
) -> None:
    assert up.stdout is not None
    assert up.stdout.readline().startswith("gateway")
    second = subprocess.run(
        [
            str(BIN / "plaudit"), "up", "--data-dir", str(tmp_path / "data"),
            "--gateway-grpc", FREE, "--gateway-http", FREE, "--trainer", FREE, "--reward", FREE,
        ],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert second.returncode != 0
    assert "in use by process" in second.stderr
    assert "Traceback" not in second.stderr
