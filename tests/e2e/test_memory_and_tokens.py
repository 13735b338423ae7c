"""What a job takes in memory, and how long prompts are, is told before anything runs, whoever asks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import httpx2
import pytest
from stack import Stack

from plaudit.errors import InvalidArgumentError

PLAUDIT = str(Path(sys.executable).parent / "plaudit")
JOB = {
    "base_model": "builtin:tiny",
    "dataset_id": "builtin:additions",
    "output_name": "sized",
    "hyperparameters": {"global_batch_size": 16, "max_response_length": 16},
    "rewards": [{"server": "builtin", "reward": "exact_answer"}],
}
PARAMETERS = 628_864


def plaudit(stack: Stack, *arguments: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PLAUDIT_ADDRESS": stack.grpc_address}
    return subprocess.run(
        [PLAUDIT, *arguments], env=environment, input=stdin, capture_output=True, text=True, timeout=120
    )


def test_what_a_job_takes_is_told_before_it_is_queued(stack: Stack) -> None:
    with stack.client() as client:
        memory = client.training_jobs.submit(JOB, validate_only=True).memory
    assert memory is not None
    # Weights, gradients, two moments, and the reference.
    assert memory.held_bytes == 20 * PARAMETERS
    assert memory.needed_bytes == memory.held_bytes + memory.activations_bytes + memory.logits_bytes
    answered = httpx2.post(
        f"{stack.http_url}/v1/training_jobs?validate_only=true", json=JOB, timeout=60
    ).json()
    assert answered["memory"]["needed_bytes"] == memory.needed_bytes
    assert answered["memory"]["device"] == memory.device
    shown = plaudit(stack, "job", "submit", "-", "--dry-run", stdin=json.dumps(JOB))
    assert shown.returncode == 0, shown.stderr
    assert memory.describe() in shown.stdout.replace("\n", " ")
    unknown = plaudit(
        stack, "job", "submit", "-", "--dry-run", "--set", "base_model=a/b", stdin=json.dumps(JOB)
    )
    assert "memory: not known before the run has loaded its model" in unknown.stdout


def test_a_job_for_which_no_trainer_has_the_memory_is_refused(stack: Stack, tmp_path: Path) -> None:
    # The headers of a model of 10^12 weights.
    config = {"hidden_size": 8192, "num_hidden_layers": 80, "num_attention_heads": 64, "vocab_size": 128_000}
    (tmp_path / "config.json").write_text(json.dumps(config))
    header = json.dumps({"model.layers.0.mlp.up_proj.weight": {"shape": [10**6, 10**6]}}).encode()
    (tmp_path / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)
    with stack.client() as client, pytest.raises(InvalidArgumentError) as refused:
        client.training_jobs.submit({**JOB, "base_model": str(tmp_path)})
    (violation,) = refused.value.violations
    assert violation.field == "base_model"
    assert "optimizer states 8 TB" in violation.message and "a smaller base model" in violation.message


def test_tokens_of_a_dataset(stack: Stack) -> None:
    with stack.client() as client:
        counted = client.datasets.token_statistics("builtin:additions", "builtin:tiny", max_prompt_length=20)
        assert counted.count == client.datasets.get("builtin:additions").row_count
    assert 0 < counted.min <= counted.median <= counted.p95 <= counted.max
    assert counted.max_prompt_length == 20
    url = f"{stack.http_url}/v1/datasets/builtin:additions/token_statistics"
    asked = {"model": "builtin:tiny", "max_prompt_length": 20}
    answered = httpx2.get(url, params=asked, timeout=60).json()
    assert answered["object"] == "token_statistics"
    assert [answered[name] for name in ("p95", "max", "too_long_count", "model_revision")] == [
        *(counted.p95, counted.max, counted.too_long_count, counted.model_revision),
    ]
    assert httpx2.get(url, timeout=60).status_code == 422
    shown = plaudit(
        *(stack, "dataset", "tokens", "builtin:additions", "--model", "builtin:tiny"),
        *("--max-prompt-length", "20", "--json"),
    )
    assert json.loads(shown.stdout)["above_limit_count"] == counted.above_limit_count
