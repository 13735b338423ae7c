"""The command line tells everything wrong at once: what it finds itself, and what only the gateway knows."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sdk_gateway import JOB
from stack import Stack

from plaudit import Client
from plaudit.errors import InvalidArgumentError

Cli = Callable[..., tuple[int, str, str]]

BAD_JOB: dict[str, Any] = {
    **JOB,
    "dataset_id": "nope",
    "output_name": 5,
    "colour": "red",
    "hyperparameters": {"max_steps": -1, "nosuch": 1},
    "rewards": [{"server": "nosuch", "reward": "r", "weight": "x"}, {"server": "builtin", "reward": "q"}],
}
BAD_FIELDS = {
    "dataset_id",
    "output_name",
    "colour",
    "hyperparameters.max_steps",
    "hyperparameters.nosuch",
    "rewards[0].server",
    "rewards[0].weight",
    "rewards[1].reward",
}


def fields_told(told: str) -> list[str]:
    first, *lines = told.splitlines()
    assert first == f"error: {len(lines)} fields are wrong"
    return [line.strip().split(": ")[0] for line in lines]


@pytest.fixture
def job_file(tmp_path: Path) -> str:
    (tmp_path / "job.json").write_text(json.dumps(BAD_JOB))
    return str(tmp_path / "job.json")


def test_a_job_that_no_message_carries_is_told_with_what_the_gateway_knows(cli: Cli, job_file: str) -> None:
    status, out, told = cli("job", "submit", job_file)
    assert (status, out) == (2, "")
    assert sorted(fields_told(told)) == sorted(BAD_FIELDS), told
    # The gateway cannot be asked: what is known here is told, and no more.
    status, _, told = cli("job", "submit", job_file, "--address", "127.0.0.1:1")
    assert status == 2
    assert sorted(fields_told(told)) == sorted(
        BAD_FIELDS - {"dataset_id", "rewards[0].server", "rewards[1].reward"}
    )


def test_what_is_left_of_such_a_job_is_never_queued(gateway: Stack) -> None:
    with Client(gateway.grpc_address) as client:
        before = [job.id for job in client.training_jobs.list()]
        with pytest.raises(InvalidArgumentError) as refused:
            client.training_jobs.submit({**JOB, "colour": "red"})
        assert [violation.field for violation in refused.value.violations] == ["colour"]
        with pytest.raises(InvalidArgumentError) as refused:
            client.training_jobs.submit({**JOB, "reward_weights": "x", "dataset_id": "nope"})
        assert [violation.field for violation in refused.value.violations] == ["reward_weights", "dataset_id"]
        assert [job.id for job in client.training_jobs.list()] == before


def test_what_is_wrong_in_set_is_told_with_the_rest(cli: Cli, gateway: Stack, tmp_path: Path) -> None:
    (tmp_path / "good.json").write_text(json.dumps(JOB))
    changes = [
        "--set",
        "hyperparameters.nosuch=1",
        "--set",
        "rewards[0].weight=x",
        "--set",
        "output_name=a/b",
    ]
    with Client(gateway.grpc_address) as client:
        job = client.training_jobs.submit(JOB)
        for command in (["job", "clone", job.id], ["job", "submit", str(tmp_path / "good.json")]):
            status, out, told = cli(*command, *changes)
            assert (status, out) == (2, "")
            assert sorted(fields_told(told)) == ["--set", "output_name", "rewards[0].weight"], told
        # What is good but for it queues nothing, and a dataset that is not there is told beside it.
        status, _, told = cli("job", "clone", job.id, "--set", "nosuch=1", "--set", "dataset_id=nope")
        assert (status, fields_told(told)) == (2, ["--set", "dataset_id"])
        status, _, told = cli("job", "clone", job.id, "--set", "nosuch=1")
        assert status == 2 and told.startswith("error: 1 field is wrong\n  --set: ")
        assert next(iter(client.training_jobs.list())).id == job.id
        status, _, told = cli("job", "compare", job.id, "job_nosuch1", "job_nosuch2")
        assert status == 3
        assert "job_nosuch1" in told and "job_nosuch2" in told
        job.cancel()
