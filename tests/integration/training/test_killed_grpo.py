"""A run of grpo that is killed at a random point goes on from its checkpoint as if nothing had happened."""

from __future__ import annotations

import json
import random
import time
from pathlib import Path

import pytest
from run_harness import RunHere, RunProcess, binding, make_start

from plaudit.types.metrics import TIMING_METRICS
from plaudit.types.statuses import RunState
from trainer_service.journal import CheckpointSaved

pytestmark = pytest.mark.timeout(300)

STEPS = 12


def untimed(metrics: dict[str, float]) -> str:
    """Every digit of what is no time, as text, in which NaN equals NaN."""
    kept = {k: v for k, v in metrics.items() if k not in TIMING_METRICS and "latency" not in k}
    return json.dumps(kept, sort_keys=True)


def weights(tmp_path: Path, run: RunHere) -> bytes:
    saved = run.entries(CheckpointSaved)[-1]
    assert saved.step == STEPS
    return (tmp_path / "artifacts" / saved.uri / "adapter_model.safetensors").read_bytes()


def test_metrics_and_weights_are_those_of_a_run_that_was_left_alone(tmp_path, odd_server, dataset):
    def start(job_id: str, **fields):
        rewards = [(binding("sum_is_right"), odd_server), (binding("brevity", 0.1), odd_server)]
        # Each rollout serves two steps.
        made = make_start(
            tmp_path,
            rewards,
            dataset=dataset,
            lora_rank=4,
            num_iterations=2,
            max_steps=STEPS,
            checkpoint_every=2,
            checkpoint_keep=100,
            **fields,
        )
        return made.model_copy(update={"job_id": job_id})

    straight = RunHere(tmp_path, start("straight"))
    assert straight.go().state is RunState.COMPLETED

    killed = RunProcess(tmp_path, start("killed"))
    try:
        killed.until(lambda: killed.entries(CheckpointSaved), "a checkpoint")
        time.sleep(random.uniform(0.0, 1.0))
    finally:
        killed.close()
    saved = killed.entries(CheckpointSaved)[-1]

    resumed = RunHere(tmp_path, start("killed", attempt=2, checkpoint_uri=saved.uri))
    assert resumed.go().state is RunState.COMPLETED
    expected = [untimed(metrics) for metrics in straight.metrics()]
    before = [untimed(metrics) for metrics in killed.metrics()[: saved.step]]
    assert [*before, *map(untimed, resumed.metrics())] == expected
    assert weights(tmp_path, resumed) == weights(tmp_path, straight)
