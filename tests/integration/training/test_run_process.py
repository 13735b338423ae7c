"""A run's process as the trainer service starts it: what it leaves on disk, and how it ends."""

import hashlib
import json
import os
from itertools import pairwise

import pyarrow.parquet as pq
import pytest
from run_harness import RunProcess, binding, make_start
from safetensors.torch import load_file

from plaudit.types import metrics as names
from plaudit.types.statuses import RunState
from trainer_service.control import SERVICE_DIED_EXIT_STATUS
from trainer_service.journal import (
    CheckpointRemoved,
    CheckpointSaved,
    CompletionsWritten,
    LogLine,
    StepCompleted,
)

# Starting a process that imports torch takes a minute where the machine is loaded.
pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def run(tmp_path):
    runs = []

    def begin(start):
        runs.append(RunProcess(tmp_path, start))
        return runs[-1]

    yield begin
    for each in runs:
        each.close()


def test_a_run_from_start_to_end(tmp_path, run, odd_server, dataset):
    rewards = [(binding("sum_is_right", 0.7), odd_server), (binding("flaky", 0.3), odd_server)]
    start = make_start(
        tmp_path,
        rewards,
        dataset=dataset,
        max_steps=6,
        checkpoint_keep=2,
        lora_rank=4,
        lora_alpha=16,
        micro_batch_size=8,
    )
    process = run(start)
    assert process.wait() == 0, process.log.read_text()

    assert [s.state for s in process.states()] == [RunState.STARTING, RunState.RUNNING, RunState.COMPLETED]
    assert process.sequences() == list(range(1, len(process.sequences()) + 1))
    steps = process.entries(StepCompleted)
    assert [(s.step, s.total_steps) for s in steps] == [(n, 6) for n in range(1, 7)]
    check_metrics(steps)
    root = tmp_path / "artifacts"
    saved = process.entries(CheckpointSaved)
    assert [c.uri for c in saved] == [f"jobs/job/attempt-1/checkpoint-{n:06d}" for n in (2, 4, 6)]
    assert [c.uri for c in process.entries(CheckpointRemoved)] == ["jobs/job/attempt-1/checkpoint-000002"]
    assert not (root / saved[0].uri).exists()
    for checkpoint in saved[1:]:
        check_checkpoint(root / checkpoint.uri, checkpoint)
    written = process.entries(CompletionsWritten)
    assert [c.step for c in written] == [1, 2, 3, 4, 5, 6]
    check_completions(root, written[0], steps[0])
    warnings = [line for line in process.entries(LogLine) if line.level == "warning"]
    assert "6 of 16 completions could not be scored" in warnings[0].message
    assert "6 times flaky: internal (the scorer lost its mind)" in warnings[0].message


def check_metrics(steps):
    expected = {getattr(names, name) for name in dir(names) if name.isupper()}
    expected = {name for name in expected if isinstance(name, str)}
    # Those are of other entries, and of another method.
    expected -= names.EVALUATION_METRICS | names.SFT_METRICS
    for reward in ("sum_is_right", "flaky"):
        for part in ("mean", "std", "failed_fraction", "latency_p95_seconds", "protocol_errors"):
            expected.add(names.reward_metric(reward, part))
    for step in steps:
        assert set(step.metrics) == expected
        assert step.metrics["reward/flaky/failed_fraction"] == 6 / 16
        assert step.metrics["reward/flaky/protocol_errors"] == 0.0  # a failure is no breach of contract
        assert step.metrics["reward/sum_is_right/failed_fraction"] == 0.0
        assert step.metrics["unscored_fraction"] == 6 / 16
        assert step.metrics["reward/flaky/mean"] == 2.0  # of 1 2 4 0 2 3 0 1 3 4
        parts = [step.metrics[n] for n in (names.ROLLOUT_SECONDS, names.SCORE_WAIT_SECONDS)]
        assert sum(parts) < step.metrics["step_seconds"]
    assert steps[0].metrics["kl_div"] == 0.0
    assert all(step.metrics["kl_div"] > 0.0 for step in steps[1:])


def check_checkpoint(folder, told):
    manifest = (folder / "manifest.json").read_bytes()
    assert hashlib.sha256(manifest).hexdigest() == told.sha256
    listed = json.loads(manifest)
    assert listed["step"] == told.step
    assert listed["prompts_consumed"] == 4 * told.step
    on_disk = {p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()}
    assert on_disk == {*listed["files"], "manifest.json"}
    assert {"adapter_model.safetensors", "optimizer.pt", "scheduler.pt", "rng_state.pth"} <= on_disk
    assert "training_args.bin" not in on_disk
    assert sum(p.stat().st_size for p in folder.rglob("*") if p.is_file()) == told.size_bytes
    for name, file in listed["files"].items():
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == file["sha256"]
    weights = load_file(folder / "adapter_model.safetensors")
    projections = {name.split(".")[-3] for name in weights}
    assert projections == {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}
    assert {w.shape[0] for name, w in weights.items() if "lora_A" in name} == {4}
    assert json.loads((folder / "adapter_config.json").read_text())["lora_alpha"] == 16


def check_completions(root, written, step):
    path = root / written.uri
    assert written.uri == "jobs/job/attempt-1/completions/step-000001.parquet"
    assert hashlib.sha256(path.read_bytes()).hexdigest() == written.sha256
    rows = pq.read_table(path).to_pylist()
    assert len(rows) == written.row_count == 16
    assert [row["completion_id"] for row in rows] == [f"1-{i}" for i in range(16)]
    assert [row["group_id"] for row in rows] == [f"1-g{i // 4}" for i in range(16)]
    for i, row in enumerate(rows):
        assert row["step"] == 1 and row["attempt"] == 1
        assert row["prompt_text"].endswith("assistant\n")
        outcomes = json.loads(row["outcomes"])
        assert [o["name"] for o in outcomes] == ["sum_is_right", "flaky"]
        assert outcomes[0]["status"] == "scored" and outcomes[0]["scored_at"].endswith("+00:00")
        if i % 3 == 0:
            assert outcomes[1]["status"] == "internal"
            assert outcomes[1]["value"] is None
            assert outcomes[1]["explanation"] == "the scorer lost its mind"
            assert row["reward"] is None and row["advantage"] is None
        else:
            assert row["reward"] == pytest.approx(0.7 * outcomes[0]["value"] + 0.3 * (i % 5))
            assert row["advantage"] is not None
    for left, right in pairwise(rows):
        if left["group_id"] == right["group_id"]:
            assert left["prompt_text"] == right["prompt_text"]
    rewards = [row["reward"] for row in rows if row["reward"] is not None]
    assert step.metrics["reward_mean"] == pytest.approx(sum(rewards) / len(rewards))


def test_it_dies_with_its_service_even_while_it_loads(tmp_path, run, odd_server, dataset):
    process = run(make_start(tmp_path, [(binding("brevity"), odd_server)], dataset=dataset))
    process.until(process.details, "a first report")
    os.close(process.commands)
    process.commands = os.open(os.devnull, os.O_WRONLY)
    assert process.wait() == SERVICE_DIED_EXIT_STATUS
    assert not process.states()[-1].state.is_terminal
