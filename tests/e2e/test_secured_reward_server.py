"""A reward server that asks for a certificate and a token: registered, waited for, trained with."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from secured import TOKEN, Keys
from stack import Stack, wait_for

from plaudit.types.statuses import JobStatus

PLAUDIT = str(Path(sys.executable).parent / "plaudit")
SERVER = """
from reward_service import Item, reward, serve


@reward(min_value=0.0, max_value=1.0)
async def vowels(item: Item) -> float:
    '''The part of the text that is vowels.'''
    return sum(letter in "aeiou" for letter in item.text) / max(1, len(item.text))


serve([vowels], name="vowels", version="2.1")
"""


@pytest.fixture(scope="module")
def keys(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Keys]:
    """The keys of a server; what gateway and trainer need of them is in their secrets folder for a while."""
    keys = Keys.make(tmp_path_factory.mktemp("keys"))
    folder = stack.folder / "data" / "secrets"
    assert not folder.exists()
    folder.symlink_to(keys.secrets.folder)
    yield keys
    folder.unlink()


def command(stack: Stack, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PLAUDIT_ADDRESS": stack.grpc_address}
    done = subprocess.run(
        [PLAUDIT, "reward-server", *arguments], env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done


def job(server: str) -> dict[str, Any]:
    return {
        "base_model": "builtin:tiny",
        "dataset_id": "builtin:additions",
        "output_name": "vowels",
        "hyperparameters": {
            "max_steps": 2,
            "rollouts_per_prompt": 4,
            "global_batch_size": 16,
            "max_response_length": 16,
            "lora_rank": 8,
        },
        "rewards": [{"server": server, "reward": "vowels"}],
        "preflight": "off",
    }


def test_a_job_waits_for_a_server_and_trains_over_mutual_tls_with_a_token(
    stack: Stack, keys: Keys, tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    names = ["--ca", "judge", "--client-certificate", "trainer", "--server-name", "judge.example"]
    added = command(stack, "add", "vowels", address, *names, "--credential", "judge").stdout
    assert "CA judge, certificate trainer, as judge.example, credential judge" in added
    assert "answers    no:" in added
    assert f"{address} unreachable since" in added
    (tmp_path / "server.py").write_text(SERVER)
    with stack.client() as client:
        made = client.training_jobs.submit(job("vowels"))

        def waits_for_a_server() -> str | None:
            detail = client.training_jobs.get(made.id).status_detail
            return detail if "waiting for reward server" in detail else None

        waiting = wait_for("the job to say what it waits for", waits_for_a_server)
        assert address in waiting
        server = subprocess.Popen(
            [sys.executable, "server.py", "--address", address, *keys.options()],
            cwd=tmp_path, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        try:
            assert server.stdout is not None
            assert json.loads(server.stdout.readline()) == {"service": "reward", "address": address}
            done = client.training_jobs.wait(made.id)
            assert done.status is JobStatus.COMPLETED, stack.logs()
            scores = [c.reward for c in client.training_jobs.completions(made.id)]
            assert len(scores) == 32
            assert all(score is not None for score in scores)
            (shown,) = json.loads(command(stack, "list", "--json").stdout)[-1]["replicas"]
            assert (shown["address"], shown["state"], shown["server_version"]) == (
                address,
                "serving",
                "vowels 2.1",
            )
            table = command(stack, "list").stdout
            assert "serving" in next(line for line in table.splitlines() if line.startswith("vowels"))
        finally:
            server.terminate()
            assert server.wait(30) == 0
    assert TOKEN not in stack.logs()
    assert TOKEN not in added + table
    files = [path for path in stack.folder.rglob("*") if path.is_file() and "secrets" not in path.parts]
    assert files
    assert [path for path in files if TOKEN.encode() in path.read_bytes()] == []


def test_a_run_without_its_secret_fails_with_the_name_of_it(stack: Stack, keys: Keys) -> None:
    added = command(stack, "add", "locked", "127.0.0.1:1", "--credential", "nobody").stdout
    assert 'credential "nobody" is missing here: set PLAUDIT_CREDENTIAL_NOBODY, or write' in added
    with stack.client() as client:
        done = client.training_jobs.wait(client.training_jobs.submit(job("locked")).id)
    assert done.status is JobStatus.FAILED
    assert done.error is not None
    assert done.error.code == "config_error"
    assert done.error.message.startswith(
        'rewards[0].server: reward server "locked": credential "nobody" is missing here'
    )
