"""The command line as a person meets it: what it says, what it leaves unsaid, and never a traceback."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from stack import Stack

from plaudit.types.metrics import HEADLINE_METRICS

PLAUDIT = str(Path(sys.executable).parent / "plaudit")
JOB = {
    "base_model": "builtin:tiny",
    "dataset_id": "builtin:additions",
    "output_name": "words",
    "hyperparameters": {"max_steps": 2, "global_batch_size": 16, "max_response_length": 16},
    "rewards": [{"server": "builtin", "reward": "exact_answer"}],
}


def environment(stack: Stack) -> dict[str, str]:
    return {**os.environ, "PLAUDIT_ADDRESS": stack.grpc_address}


def plaudit(stack: Stack, *arguments: str | bytes) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [PLAUDIT, *arguments], env=environment(stack), capture_output=True, text=True, timeout=60
    )


@pytest.fixture
def job_file(tmp_path: Path) -> Path:
    path = tmp_path / "job.json"
    path.write_text(json.dumps(JOB))
    return path


@pytest.fixture
def endless(stack: Stack, tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "endless.json"
    path.write_text(
        json.dumps({**JOB, "hyperparameters": {**JOB["hyperparameters"], "max_steps": 1_000_000}})
    )
    yield path
    with stack.client() as client:
        for job in client.training_jobs.list():
            if not job.status.is_terminal:
                client.training_jobs.cancel(job.id)


@pytest.mark.parametrize(
    "arguments",
    [
        ["job", "get", b"\xff"],
        ["job", "watch", b"\xff"],
        ["job", "metrics", "job_1", "--from-step", "9" * 30],
        ["job", "completions", "job_1", "--step", "9" * 30],
        ["job", "list", "--limit", "9" * 30],
        ["job", "list", "--address", "127.0.0.1:" + "9" * 5_000],
        ["dataset", "delete", b"\xff"],
        ["reward-server", "add", "x", b"\xff"],
    ],
    ids=lambda arguments: f"{arguments[0]} {arguments[1]}",
)
def test_arguments_that_cannot_be_sent_are_refused_in_words(
    stack: Stack, arguments: list[str | bytes]
) -> None:
    refused = plaudit(stack, *arguments)
    assert refused.returncode == 2
    assert "Traceback" not in refused.stderr
    assert "error: 1 field is wrong" in refused.stderr or "Invalid value for '--limit'" in refused.stderr


def test_a_job_is_named_when_it_is_watched_and_json_comes_alone(stack: Stack, job_file: Path) -> None:
    watched = plaudit(stack, "job", "submit", str(job_file), "--watch")
    assert watched.returncode == 0
    job_id, status = watched.stdout.splitlines()[0].split()
    assert (job_id[:4], status) == ("job_", "queued")

    shown = plaudit(stack, "job", "get", job_id, "--json")
    assert shown.stderr == ""
    assert json.loads(shown.stdout)["spec"]["hyperparameters"]["stop_on"] == []

    table = plaudit(stack, "job", "metrics", job_id)
    assert table.stdout.split("\n")[0].split() == ["step", *HEADLINE_METRICS]
    unknown = plaudit(stack, "job", "metrics", job_id, "--key", "los")
    assert unknown.stderr.startswith("no metric los yet; there is ")
    assert "loss" in unknown.stderr


def test_an_interrupted_watch_says_how_to_stop_the_job(stack: Stack, endless: Path) -> None:
    watching = subprocess.Popen(
        [PLAUDIT, "job", "submit", str(endless), "--watch"],
        env=environment(stack), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert watching.stdout is not None
    job_id = watching.stdout.readline().split()[0]
    assert watching.stdout.readline() != ""
    watching.send_signal(signal.SIGINT)
    _, told = watching.communicate(timeout=30)
    assert watching.returncode == 130
    assert f"plaudit job cancel {job_id}" in told
    assert "Traceback" not in told


def test_a_table_is_uploaded_and_looked_into(stack: Stack, tmp_path: Path) -> None:
    table = tmp_path / "sums.csv"
    table.write_text('prompt,answer\n"What is 2 + 3,\nplease?",5\n4 + 4?,8\n')
    told = json.loads(plaudit(stack, "dataset", "upload", str(table), "--json").stdout)
    assert (told["name"], told["row_count"], told["methods"]) == ("sums", 2, ["grpo"])
    shown = plaudit(stack, "dataset", "rows", "sums").stdout.splitlines()
    assert shown[0].split() == ["row", "prompt", "answer"]
    assert shown[1].split() == ["0", "What", "is", "2", "+", "3,", "please?", "5"]
    rows = json.loads(plaudit(stack, "dataset", "rows", "sums", "--limit", "1", "--json").stdout)
    assert rows == [{"number": 0, "prompt": "What is 2 + 3,\nplease?", "columns": {"answer": "5"}}]


def test_bytes_that_were_there_under_another_name_are_told(stack: Stack, tmp_path: Path) -> None:
    rows = tmp_path / "first.jsonl"
    rows.write_text('{"prompt": "told once"}\n')
    first = plaudit(stack, "dataset", "upload", str(rows))
    assert first.stderr == ""
    second = plaudit(stack, "dataset", "upload", str(rows), "--name", "second")
    assert second.returncode == 0
    assert second.stderr == "these bytes were there already, as dataset first\n"
