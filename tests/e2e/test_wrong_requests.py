"""Ten wrong fields in one job are refused in one answer that names all ten, in the same words everywhere."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx2
import pytest
from stack import Stack

from plaudit.errors import InvalidArgumentError

WRONG: dict[str, Any] = {
    "base_model": "builtin:tiny",
    "dataset_id": "no-such-dataset",
    "output_name": "not a name",
    "method": "ppo",
    "hyperparameters": {
        "learning_rate": -1,
        "rollouts_per_prompt": 1,
        "kl_coef": "much",
        "temperature": 0,
        "loss_type": "mine",
        "learning_rat": 1e-6,
    },
    "rewards": [
        {"server": "no-such-server", "reward": "exact_answer", "name": "first"},
        {"server": "builtin", "reward": "exact_answer", "weight": 1000000.5, "name": "second"},
    ],
}
WRONG_FIELDS = {
    "dataset_id",
    "output_name",
    "method",
    "hyperparameters.learning_rate",
    "hyperparameters.rollouts_per_prompt",
    "hyperparameters.kl_coef",
    "hyperparameters.temperature",
    "hyperparameters.loss_type",
    "hyperparameters.learning_rat",
    "rewards[0].server",
    "rewards[1].weight",
}


def by_grpc(stack: Stack, spec: dict[str, Any]) -> dict[str, str]:
    with stack.client() as client, pytest.raises(InvalidArgumentError) as caught:
        client.training_jobs.submit(spec)
    return {v.field: v.message for v in caught.value.violations}


def by_rest(stack: Stack, spec: dict[str, Any]) -> dict[str, str]:
    answer = httpx2.post(f"{stack.http_url}/v1/training_jobs", json=spec)
    assert answer.status_code == 422
    error = answer.json()["error"]
    assert error["type"] == "invalid_request_error"
    return {e["param"]: e["message"] for e in error["errors"]}


def by_cli(stack: Stack, spec: dict[str, Any], folder: Path) -> dict[str, str]:
    file = folder / "job.json"
    file.write_text(json.dumps(spec))
    done = subprocess.run(
        [str(Path(sys.executable).parent / "plaudit"), "job", "submit", str(file)],
        env={**os.environ, "PLAUDIT_ADDRESS": stack.grpc_address},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 2
    assert done.stdout == ""
    lines = done.stderr.splitlines()
    count = len(lines) - 1
    assert lines[0] == ("error: 1 field is wrong" if count == 1 else f"error: {count} fields are wrong")
    return dict(line.strip().split(": ", 1) for line in lines[1:])


def test_all_wrong_fields_are_named_at_once_in_the_same_words(stack: Stack, tmp_path: Path) -> None:
    with stack.client() as client:
        before = [job.id for job in client.training_jobs.list()]
    found = by_grpc(stack, WRONG)
    assert set(found) == WRONG_FIELDS
    assert len(found) >= 10
    assert by_rest(stack, WRONG) == found
    assert by_cli(stack, WRONG, tmp_path) == found
    with stack.client() as client:
        assert [job.id for job in client.training_jobs.list()] == before


@pytest.mark.parametrize(
    ("change", "field", "way_out"),
    [
        ({"hyperparameters": {"global_batch_size": 60}}, "hyperparameters.global_batch_size", "56 or 64"),
        (
            {"hyperparameters": {"global_batch_size": 80_000, "rollouts_per_prompt": 2}},
            "hyperparameters.global_batch_size",
            "4000",
        ),
        ({"rewards": [{"server": "builtin", "reward": "exactanswer"}]}, "rewards[0].reward", "exact_answer"),
        (
            {"rewards": [{"server": "builtin", "reward": "exact_answer", "config": {"tagg": "x"}}]},
            "rewards[0].config.tagg",
            "",
        ),
        (
            {"rewards": [{"server": "builtin", "reward": "exact_answer", "config": {"column": "solution"}}]},
            "rewards[0].config.column",
            "answer",
        ),
    ],
)
def test_what_only_the_gateway_can_know_is_refused_with_a_way_out(
    stack: Stack, tmp_path: Path, change: dict[str, Any], field: str, way_out: str
) -> None:
    good = {
        "base_model": "builtin:tiny",
        "dataset_id": "builtin:additions",
        "output_name": "adder",
        "rewards": [{"server": "builtin", "reward": "exact_answer"}],
    }
    found = by_grpc(stack, {**good, **change})
    assert list(found) == [field]
    assert way_out in found[field]
    assert by_rest(stack, {**good, **change}) == found
    assert by_cli(stack, {**good, **change}, tmp_path) == found
