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
    (tmp_path / "plaudit.toml").write_text(
        '[gateway]\ntrainers = ["127.0.0.1:9"]\nreward_servers = { judge = ["127.0.0.1:9"] }\n'
    )
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
        # Beside the one that the operator has named, which nobody has started.
        assert not client.reward_servers.get("judge").reachable

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
    assert "asyncio" not in second.stderr


@pytest.mark.parametrize("flag", ["--data-dir", "--keep"])
def test_a_file_for_a_data_directory_is_told_in_one_line(tmp_path: Path, flag: str) -> None:
    (tmp_path / "file").write_text("")
    command = "up" if flag == "--data-dir" else "demo"
    refused = subprocess.run(
        [str(BIN / "plaudit"), command, flag, str(tmp_path / "file")],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert refused.returncode == 1
    assert refused.stderr.startswith(f"error: {tmp_path / 'file' / 'logs'} cannot be used as a folder (")
    assert refused.stderr.count("\n") == 1


@pytest.mark.parametrize("options", [[], ["--data-dir"]])
def test_up_keeps_to_the_settings_where_no_option_says_otherwise(tmp_path: Path, options: list[str]) -> None:
    (tmp_path / "plaudit.toml").write_text(
        f'data_dir = "{tmp_path / "settings"}"\n'
        '[gateway]\ngrpc_address = "127.0.0.1:0"\nhttp_address = "127.0.0.1:0"\n'
        '[trainer]\naddress = "127.0.0.1:0"\n[reward]\naddress = "127.0.0.1:0"\n'
    )
    given = [*options, *(str(tmp_path / "option") for _ in options)]
    process = subprocess.Popen(
        [str(BIN / "plaudit"), "up", *given], stdout=subprocess.PIPE, text=True,
        env={**os.environ, "PLAUDIT_CONFIG": str(tmp_path / "plaudit.toml")},
    )  # fmt: skip
    try:
        assert process.stdout is not None
        told = [process.stdout.readline() for _ in range(4)]
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)
    assert not {":7430", ":7431", ":7432", ":7433"} & set(re.findall(r":\d+", "".join(told)))
    folder = tmp_path / ("option" if options else "settings")
    assert told[3] == f"data and logs in {folder}; Ctrl-C ends all\n"
    assert {path.name for path in folder.iterdir()} >= {"gateway", "trainer", "logs"}
    assert {path.name for path in tmp_path.iterdir()} == {"plaudit.toml", folder.name}
