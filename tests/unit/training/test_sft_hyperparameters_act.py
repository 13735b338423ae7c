"""Every hyperparameter of sft has the effect that its description promises: one test for each."""

import math

import pytest
import torch
from sft_bench import make_examples
from transformers import TrainerCallback

from plaudit.errors import InvalidArgumentError
from plaudit.types.rules import SHARED_RULES
from plaudit.types.sft_hyperparameters import SftHyperparameters
from trainer_service.journal import CheckpointRemoved, CheckpointSaved
from trainer_service.training.config import plan_imitation

ELSEWHERE = {
    # tests/integration/training/test_sft_runs.py: they act where data, model and files are handled
    "max_length",
    "lora_rank",
    "lora_alpha",
    "load_in_4bit",
    # tests/unit/trainer_service/test_unsloth.py: it acts before the run starts
    "use_unsloth",
}


def test_each_is_tested():
    refused = {name for rule in SHARED_RULES if len(rule.reads) == 1 for name in rule.reads}
    tested = {name.removeprefix("test_") for name in globals() if name.startswith("test_")}
    assert set(SftHyperparameters.model_fields) - (refused - {"checkpoint_every"}) - ELSEWHERE <= tested


def trained(make_sft_bench, **hyperparameters):
    bench = make_sft_bench(**hyperparameters)
    bench.trainer.train()
    return bench


def test_learning_rate(make_sft_bench):
    assert SftHyperparameters().learning_rate == 1e-5
    for rate in (1e-3, 1e-2):
        bench = make_sft_bench(learning_rate=rate, max_steps=1)
        before = bench.parameters()
        bench.trainer.train()
        after = bench.parameters()
        # Adam's first step moves every weight by the learning rate, whatever the gradient.
        moved = max((after[name] - before[name]).abs().max().item() for name in before)
        assert moved == pytest.approx(rate, rel=1e-2)
        assert bench.steps()[0]["learning_rate"] == rate


def test_num_epochs(make_sft_bench):
    bench = trained(make_sft_bench, num_epochs=3, max_steps=None, examples=make_examples(16))
    assert len(bench.taken) == 6
    passes = [bench.taken[n] + bench.taken[n + 1] for n in (0, 2, 4)]
    assert [sorted(rows) for rows in passes] == [list(range(16))] * 3
    assert passes[0] != passes[1] != passes[2]


def test_max_steps(make_sft_bench):
    assert len(trained(make_sft_bench, max_steps=3, num_epochs=1).steps()) == 3


def test_global_batch_size(make_sft_bench):
    assert len(trained(make_sft_bench, global_batch_size=12, micro_batch_size=4, max_steps=1).taken[0]) == 12
    with pytest.raises(InvalidArgumentError) as refused:
        make_sft_bench(global_batch_size=24)
    (violation,) = refused.value.violations
    assert violation.field == "hyperparameters.global_batch_size"
    assert violation.message == "24 takes 24 examples a step, but there are 16; 16 would work"


def test_seed(make_sft_bench):
    one, same, other = (trained(make_sft_bench, seed=s) for s in (1, 1, 2))
    assert one.taken == same.taken != other.taken


def test_lr_scheduler(make_sft_bench):
    rates = {
        kind: [m["learning_rate"] for m in trained(make_sft_bench, lr_scheduler=kind, max_steps=4).steps()]
        for kind in ("constant", "linear", "cosine")
    }
    assert rates["constant"] == [1e-2] * 4
    assert rates["linear"] == pytest.approx([1e-2 * (1 - n / 4) for n in range(4)])
    assert rates["cosine"] == pytest.approx([1e-2 * (1 + math.cos(math.pi * n / 4)) / 2 for n in range(4)])


@pytest.mark.parametrize("kind", ["constant", "linear", "cosine"])
def test_warmup_steps(make_sft_bench, kind):
    bench = trained(make_sft_bench, warmup_steps=2, lr_scheduler=kind, max_steps=3)
    assert [m["learning_rate"] for m in bench.steps()] == pytest.approx([0.0, 5e-3, 1e-2])


def test_weight_decay(make_sft_bench):
    plain = make_sft_bench(max_steps=1)
    before = plain.parameters()
    plain.trainer.train()
    decayed = trained(make_sft_bench, weight_decay=0.5, max_steps=1)
    name = "model.layers.0.mlp.up_proj.weight"
    torch.testing.assert_close(
        decayed.parameters()[name], plain.parameters()[name] - 1e-2 * 0.5 * before[name], rtol=0, atol=1e-6
    )


class Norms(TrainerCallback):
    def __init__(self):
        self.seen = []

    def on_pre_optimizer_step(self, args, state, control, *, model, **_):
        gradients = [p.grad for p in model.parameters() if p.grad is not None]
        self.seen.append(torch.nn.utils.get_total_norm(gradients).item())


def test_max_grad_norm(make_sft_bench):
    norms = {}
    for limit in (0.0, 0.01):
        bench = make_sft_bench(max_grad_norm=limit, max_steps=1)
        callback = Norms()
        bench.trainer.add_callback(callback)
        bench.trainer.train()
        norms[limit] = callback.seen[0]
        # What is told is the norm before clipping.
        assert bench.steps()[0]["grad_norm"] == pytest.approx(norms[0.0], rel=1e-4)
    assert norms[0.0] > 0.1
    assert norms[0.01] == pytest.approx(0.01, rel=1e-3)


class Passes(TrainerCallback):
    def __init__(self):
        self.seen = 0

    def on_substep_end(self, args, state, control, **_):
        self.seen += 1


def test_micro_batch_size(make_sft_bench):
    norms = []
    for size, between in ((2, 3), (8, 0)):
        bench = make_sft_bench(micro_batch_size=size, max_steps=1)
        passes = Passes()
        bench.trainer.add_callback(passes)
        bench.trainer.train()
        assert passes.seen == between
        norms.append(bench.steps()[0]["grad_norm"])
    assert norms[0] == pytest.approx(norms[1], rel=1e-4)
    with pytest.raises(InvalidArgumentError, match="4 would work"):
        plan_imitation(SftHyperparameters(global_batch_size=8), row_count=16, micro_batch_size=6)


def test_gradient_checkpointing(make_sft_bench):
    norms = {}
    for setting in ("on", "off", "auto"):
        bench = trained(make_sft_bench, gradient_checkpointing=setting)
        assert bench.trainer.model.is_activation_checkpointing is (setting == "on")
        norms[setting] = [m["grad_norm"] for m in bench.steps()]
    assert norms["on"] == pytest.approx(norms["off"], rel=1e-5)
    assert norms["auto"] == norms["off"]


def test_dtype(make_sft_bench):
    half, single, auto = (
        trained(make_sft_bench, dtype=d, max_steps=1) for d in ("bfloat16", "float32", "auto")
    )
    assert {p.dtype for p in half.trainer.model.parameters()} == {torch.float32}
    assert half.steps()[0]["loss"] != single.steps()[0]["loss"]
    assert half.steps()[0]["loss"] == pytest.approx(single.steps()[0]["loss"], rel=0.1)
    assert auto.steps()[0]["loss"] == single.steps()[0]["loss"]


@pytest.mark.parametrize(("every", "steps"), [(0.5, [3, 6]), (2.0, [2, 4, 6]), (0.01, [1, 2, 3, 4, 5, 6])])
def test_checkpoint_every(make_sft_bench, every, steps):
    bench = trained(make_sft_bench, checkpoint_every=every, max_steps=6, checkpoint_keep=9)
    assert [c.step for c in bench.entries(CheckpointSaved)] == steps


def test_checkpoint_keep(make_sft_bench):
    bench = trained(make_sft_bench, checkpoint_every=1.0, max_steps=5, checkpoint_keep=2)
    assert [c.step for c in bench.entries(CheckpointRemoved)] == [1, 2, 3]
    folder = bench.artifact_root / "jobs/job/attempt-1"
    assert sorted(p.name for p in folder.iterdir()) == ["checkpoint-000004", "checkpoint-000005"]
