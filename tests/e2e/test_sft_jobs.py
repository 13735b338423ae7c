"""Supervised fine-tuning through every layer, and grpo from where it ended."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import pytest
from stack import Stack
from stack import wait_for as wait_for_some_time

from plaudit.types.statuses import JobStatus

BIN = Path(sys.executable).parent

wait_for = partial(wait_for_some_time, seconds=150.0)


def chats(folder: Path) -> Path:
    path = folder / "chats.jsonl"
    rows = [
        {
            "messages": [
                {"role": "user", "content": f"What is {left} + {right}?"},
                {"role": "assistant", "content": f"<answer>{left + right}</answer>"},
            ],
            "answer": left + right,
        }
        for left in range(8)
        for right in range(8)
    ]
    path.write_text("\n".join(json.dumps(row) for row in rows))
    return path


@pytest.mark.timeout(400)
def test_sft_then_grpo_from_its_checkpoint(stack: Stack, tmp_path: Path) -> None:
    with stack.client() as client:
        dataset = client.datasets.upload(chats(tmp_path))
        wanted = {
            "base_model": "builtin:tiny",
            "dataset_id": dataset.id,
            "output_name": "told",
            "method": "sft_text",
            "hyperparameters": {
                "learning_rate": 1e-4,
                "max_steps": 100_000,
                "global_batch_size": 16,
                "lora_rank": 4,
                "checkpoint_every": 100_000,
            },
        }
        answer = httpx2.post(f"{stack.http_url}/v1/training_jobs", json=wanted)
        assert answer.status_code < 300, answer.text
        assert (answer.json()["method"], answer.json()["rewards"]) == ("sft", [])
        job_id = answer.json()["id"]

        wait_for("two steps", lambda: client.training_jobs.get(job_id).current_step >= 2)
        client.training_jobs.pause(job_id)
        wait_for("the pause", lambda: client.training_jobs.get(job_id).status is JobStatus.PAUSED)
        paused = client.training_jobs.get(job_id)
        assert paused.latest_checkpoint_id == f"{job_id}@{paused.current_step}"
        client.training_jobs.resume(job_id)
        wait_for("a later step", lambda: client.training_jobs.get(job_id).current_step > paused.current_step)
        client.training_jobs.cancel(job_id)
        wait_for("the cancel", lambda: client.training_jobs.get(job_id).status is JobStatus.CANCELLED)
        series = client.training_jobs.metrics(job_id, max_points=5000)
        assert [row.step for row in series.metrics] == list(range(1, len(series.metrics) + 1))
        assert client.training_jobs.get(job_id).attempt == 2
        assert {"loss", "token_accuracy", "trained_tokens"} <= set(series.available_keys)
        assert list(client.training_jobs.completions(job_id)) == []
        for query, shown in (("sft", True), ("sft_text", True), ("grpo", False)):
            listed = httpx2.get(f"{stack.http_url}/v1/training_jobs?method={query}").json()["data"]
            assert (job_id in [job["id"] for job in listed]) is shown

        spec: dict[str, Any] = {
            "base_model": "builtin:tiny",
            "dataset_id": dataset.id,
            "output_name": "reinforced",
            "resume_from": paused.latest_checkpoint_id,
            "hyperparameters": {
                "learning_rate": 1e-3,
                "max_steps": 3,
                "rollouts_per_prompt": 4,
                "global_batch_size": 16,
                "max_response_length": 16,
                "kl_coef": 0.04,
            },
            "rewards": [{"server": "builtin", "reward": "exact_answer"}],
            "preflight": "off",
        }
        (tmp_path / "job.json").write_text(json.dumps(spec))
        submitted = subprocess.run(
            [str(BIN / "plaudit"), "job", "submit", str(tmp_path / "job.json"), "--json"],
            env={**os.environ, "PLAUDIT_ADDRESS": stack.grpc_address},
            capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        assert submitted.returncode == 0, submitted.stderr
        job = json.loads(submitted.stdout)
        assert job["spec"]["resume_from"] == paused.latest_checkpoint_id
        finished = client.training_jobs.wait(job["id"])
        assert finished.status is JobStatus.COMPLETED, stack.logs()
        kl = [row.values["kl_div"] for row in client.training_jobs.metrics(job["id"]).metrics]
        # The policy of sft is the reference.
        assert kl[0] < 1e-9
        assert len(kl) == 3
