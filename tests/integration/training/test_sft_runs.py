"""Runs of sft from start.json to the last entry of the journal, on the embedded model."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest
import torch
from run_harness import RunHere, RunProcess, additions, binding, make_start, write_dataset
from safetensors.torch import load_file

from plaudit.types.jobs import DatasetReference, InitCheckpoint, RunSpec
from plaudit.types.metrics import TIMING_METRICS
from plaudit.types.sft_hyperparameters import SftHyperparameters
from plaudit.types.statuses import ErrorCode, RunState
from trainer_service.journal import CheckpointSaved, CompletionsWritten, LogLine
from trainer_service.run_directory import RunStart

SMALL = {"learning_rate": 1e-3, "global_batch_size": 16, "max_steps": 4, "checkpoint_every": 2.0}


def answered(count: int = 40) -> list[tuple[Any, dict[str, Any]]]:
    return [(prompt, {"completion": f"[{columns['answer']}]"}) for prompt, columns in additions(count)]


def sft_start(
    tmp_path: Path,
    dataset: DatasetReference,
    *,
    attempt: int = 1,
    checkpoint_uri: str | None = None,
    job_id: str = "sft",
    **hyperparameters: Any,
) -> RunStart:
    return RunStart(
        run_id=f"run-{job_id}-{attempt}",
        job_id=job_id,
        attempt=attempt,
        spec=RunSpec(
            base_model="builtin:tiny",
            output_name="adder",
            method="sft",
            hyperparameters=SftHyperparameters(**{**SMALL, **hyperparameters}),
            dataset=dataset,
            rewards=(),
        ),
        checkpoint_uri=checkpoint_uri,
        artifact_root=tmp_path / "artifacts",
    )


def untimed(metrics: dict[str, float]) -> dict[str, float]:
    return {name: value for name, value in metrics.items() if name not in TIMING_METRICS}


def ran(tmp_path: Path, start: RunStart) -> RunHere:
    run = RunHere(tmp_path, start)
    run.go()
    return run


def test_a_run_asks_nobody_and_tells_what_it_learnt(tmp_path, monkeypatch):
    def no_connection(*_: object) -> None:
        raise AssertionError("sft asks nobody")

    monkeypatch.setattr(socket.socket, "connect", no_connection)
    run = ran(tmp_path, sft_start(tmp_path, write_dataset(tmp_path / "artifacts", answered())))
    assert [s.state for s in run.states()] == [RunState.STARTING, RunState.RUNNING, RunState.COMPLETED]
    assert set(run.metrics()[0]) == {
        "loss", "learning_rate", "grad_norm", "step_skipped", "step_not_finite", "step_seconds",
        "tokens_per_second", "token_accuracy", "trained_tokens",
    }  # fmt: skip
    assert run.metrics()[-1]["loss"] < run.metrics()[0]["loss"]
    assert [c.step for c in run.entries(CheckpointSaved)] == [2, 4]
    assert run.entries(CompletionsWritten) == []
    plan = run.entries(LogLine)[0]
    assert "4 steps of 16 examples over 40" in plan.message
    assert plan.fields["versions"]["trl"]


def test_what_is_cut_or_left_out_is_told(tmp_path):
    rows = [
        *answered(20),
        ("What is 1 + 2?", {"completion": "3" * 60}),
        ("1 + " * 50, {"completion": "50"}),
        ("", {"text": "It is 19."}),
    ]
    dataset = write_dataset(tmp_path / "artifacts", rows)
    run = ran(tmp_path, sft_start(tmp_path, dataset, max_length=40, global_batch_size=8, max_steps=1))
    warnings = [line.message for line in run.entries(LogLine) if line.level == "warning"]
    assert [m.split(" of 23 ")[0] for m in warnings] == ["1", "1"]
    assert "longer than max_length (40 tokens) and lost their end" in warnings[0]
    assert "left out, as nothing to learn stands in their first max_length" in warnings[1]


@pytest.mark.parametrize(
    ("rows", "settings", "code", "message"),
    [
        (answered(4), {}, ErrorCode.CONFIG_ERROR, "16 takes 16 examples a step, but there are 4; 4 would"),
        (answered(20), {"max_length": 5}, ErrorCode.CONFIG_ERROR, "5 leaves nothing to learn of any"),
        (additions(20), {}, ErrorCode.DATASET_ERROR, "row 1 has no answer to imitate"),
    ],
)
def test_what_cannot_be_learnt_fails_with_a_way_out(tmp_path, rows, settings, code, message):
    run = RunHere(tmp_path, sft_start(tmp_path, write_dataset(tmp_path / "artifacts", rows), **settings))
    end = run.go()
    assert (end.state, end.error.code) == (RunState.FAILED, code)
    assert message in end.error.message


@pytest.mark.parametrize(
    "settings",
    [
        {"lora_rank": 4, "lora_alpha": 16},
        {"lora_rank": 4, "load_in_4bit": True},
    ],
    ids=["adapters", "four bits"],
)
def test_adapters_are_float32_and_a_run_goes_on_exactly(tmp_path, settings):
    dataset = write_dataset(tmp_path / "artifacts", answered())
    run = ran(tmp_path, sft_start(tmp_path, dataset, **settings))
    half, end = run.entries(CheckpointSaved)

    def saved(checkpoint: CheckpointSaved) -> dict[str, torch.Tensor]:
        return load_file(tmp_path / "artifacts" / checkpoint.uri / "adapter_model.safetensors")

    weights = saved(end)
    assert {w.dtype for w in weights.values()} == {torch.float32}
    assert {min(w.shape) for w in weights.values()} == {4}
    assert all(w.abs().max() > 0 for name, w in weights.items() if "lora_B" in name)
    # Smaller steps than bfloat16 tells apart were taken.
    assert any(not torch.equal(w, w.bfloat16().float()) for w in weights.values())

    resumed = ran(tmp_path, sft_start(tmp_path, dataset, attempt=2, checkpoint_uri=half.uri, **settings))
    assert [untimed(m) for m in resumed.metrics()] == [untimed(m) for m in run.metrics()[2:]]
    again = saved(resumed.entries(CheckpointSaved)[-1])
    assert all(torch.equal(again[name], weights[name]) for name in weights)


def test_lora_alpha_scales_what_adapters_add(tmp_path):
    dataset = write_dataset(tmp_path / "artifacts", answered())
    losses = {
        alpha: ran(
            tmp_path, sft_start(tmp_path, dataset, job_id=f"a{alpha}", lora_rank=4, lora_alpha=alpha)
        ).metrics()
        for alpha in (1, 32)
    }
    assert losses[1][0]["loss"] == losses[32][0]["loss"]
    assert losses[32][-1]["loss"] < losses[1][-1]["loss"] - 0.1


def test_a_process_that_is_killed_is_taken_up_where_it_was_saved(tmp_path):
    dataset = write_dataset(tmp_path / "artifacts", answered())
    straight = ran(tmp_path, sft_start(tmp_path, dataset, job_id="straight", max_steps=8))
    killed = RunProcess(tmp_path, sft_start(tmp_path, dataset, max_steps=8))
    try:
        killed.until(lambda: killed.entries(CheckpointSaved), "a checkpoint")
    finally:
        killed.close()
    saved = killed.entries(CheckpointSaved)[-1]
    resumed = ran(tmp_path, sft_start(tmp_path, dataset, attempt=2, checkpoint_uri=saved.uri, max_steps=8))
    assert [untimed(m) for m in resumed.metrics()] == [untimed(m) for m in straight.metrics()[saved.step :]]


@pytest.mark.parametrize("learnt", [{}, {"lora_rank": 4}], ids=["full", "adapters"])
@pytest.mark.parametrize("reinforced", [{}, {"lora_rank": 4}], ids=["then full", "then adapters"])
def test_grpo_starts_where_sft_ended_and_goes_on_exactly(tmp_path, odd_server, learnt, reinforced):
    answers = write_dataset(tmp_path / "artifacts", answered())
    questions = write_dataset(tmp_path / "artifacts", additions())
    sft = ran(tmp_path, sft_start(tmp_path, answers, learning_rate=5e-4, max_steps=2, **learnt))
    inits = (InitCheckpoint(uri=sft.entries(CheckpointSaved)[-1].uri),)

    def begun(attempt: int, checkpoint_uri: str | None = None) -> RunStart:
        start = make_start(
            tmp_path,
            [(binding("brevity"), odd_server)],
            dataset=questions,
            attempt=attempt,
            checkpoint_uri=checkpoint_uri,
            learning_rate=1e-3,
            max_steps=3,
            **reinforced,
        )
        spec = start.spec.model_copy(update={"init_checkpoints": inits})
        return start.model_copy(update={"spec": spec})

    run = ran(tmp_path, begun(1))
    assert run.states()[-1].state is RunState.COMPLETED, run.states()[-1].error
    # The policy that sft made is the reference: nothing has diverged yet.
    assert run.metrics()[0]["kl_div"] == pytest.approx(0.0, abs=1e-9)
    assert run.metrics()[-1]["kl_div"] > 1e-7
    half = run.entries(CheckpointSaved)[0]
    resumed = ran(tmp_path, begun(2, half.uri))
    for ours, theirs in zip(resumed.metrics(), run.metrics()[half.step :], strict=True):
        for metric in ("loss", "kl_div", "grad_norm", "reward_mean", "policy_entropy"):
            assert ours[metric] == theirs[metric], metric
