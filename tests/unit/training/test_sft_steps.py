"""Steps of sft: TRL's own, in our order; skipped, paused, cancelled and taken up again like those of grpo."""

import math

import pytest
import torch
from datasets import Dataset
from peft import LoraConfig
from sft_bench import make_examples
from training_bench import PAD, load_model, load_tokenizer
from transformers import TrainerCallback
from trl import SFTConfig, SFTTrainer

from plaudit.types.metrics import TIMING_METRICS
from plaudit.types.statuses import RunState
from trainer_service.control import RunControl
from trainer_service.journal import CheckpointSaved, LogLine, RunStateChanged, StepCompleted
from trainer_service.training.checkpoints import open_checkpoint
from trainer_service.training.reporting import RunCancelledError
from trainer_service.training.seeding import pass_order
from trainer_service.training.sft.batches import collate, micro_batches


def adapter():
    return LoraConfig(
        r=4, lora_alpha=8, target_modules=["q_proj", "v_proj", "up_proj"], task_type="CAUSAL_LM"
    )


class Told(TrainerCallback):
    def __init__(self):
        self.logs = []

    def on_log(self, args, state, control, logs=None, **_):
        if "loss" in logs:
            self.logs.append(logs)


def by_plain_trl(model_dir, examples, rows_of_steps, *, accumulation, tmp_path):
    """TRL's SFTTrainer on the same examples in the same order, with labels made by hand."""
    ordered = [examples[row] for rows in rows_of_steps for row in rows]
    told = Told()
    trainer = SFTTrainer(
        model=load_model(model_dir),
        args=SFTConfig(
            output_dir=str(tmp_path / "plain"),
            use_cpu=True,
            bf16=False,
            learning_rate=1e-2,
            lr_scheduler_type="constant",
            max_steps=len(rows_of_steps),
            per_device_train_batch_size=len(rows_of_steps[0]) // accumulation,
            gradient_accumulation_steps=accumulation,
            gradient_checkpointing=False,
            train_sampling_strategy="sequential",
            max_length=None,
            logging_steps=1,
            report_to=[],
            save_strategy="no",
            disable_tqdm=True,
        ),
        train_dataset=Dataset.from_dict(
            {
                "input_ids": [e.token_ids_T.tolist() for e in ordered],
                "labels": [
                    [t if m else -100 for t, m in zip(e.token_ids_T.tolist(), e.trained_T, strict=True)]
                    for e in ordered
                ],
            }
        ),
        processing_class=load_tokenizer(model_dir),
        callbacks=[told],
    )
    trainer.train()
    return trainer, told.logs


@pytest.mark.parametrize("accumulation", [1, 4])
def test_takes_the_steps_of_plain_trl(make_sft_bench, model_dir, tmp_path, accumulation):
    examples = make_examples(16)
    bench = make_sft_bench(examples=examples, micro_batch_size=8 // accumulation, max_steps=3)
    bench.trainer.train()
    plain, logs = by_plain_trl(model_dir, examples, bench.taken, accumulation=accumulation, tmp_path=tmp_path)
    for ours, theirs in zip(bench.steps(), logs, strict=True):
        assert ours["loss"] == pytest.approx(float(theirs["loss"]), abs=2e-4)
        assert ours["grad_norm"] == pytest.approx(float(theirs["grad_norm"]), rel=1e-3)
        if accumulation == 1:  # TRL means the accuracies of micro-batches
            assert ours["token_accuracy"] == pytest.approx(theirs["mean_token_accuracy"])
    theirs = dict(plain.model.named_parameters())
    moved = 0.0
    for name, weight in bench.parameters().items():
        torch.testing.assert_close(weight, theirs[name].detach(), rtol=0, atol=2e-5)
        moved = max(moved, float((weight - load_model(model_dir).get_parameter(name)).detach().abs().max()))
    assert moved > 1e-2


def test_the_loss_is_the_mean_over_the_trained_tokens_of_the_step(make_sft_bench, model_dir):
    examples = make_examples(8)
    model = load_model(model_dir)
    logps = []
    for example in examples:
        ids = torch.from_numpy(example.token_ids_T).long()
        with torch.no_grad():
            log_probs = model(input_ids=ids.unsqueeze(0)).logits[0].log_softmax(-1)
        logps += [log_probs[t - 1, ids[t]].item() for t in range(len(ids)) if example.trained_T[t]]
    for size in (1, 2, 8):
        bench = make_sft_bench(examples=examples, micro_batch_size=size, max_steps=1)
        bench.trainer.train()
        (step,) = bench.steps()
        assert step["loss"] == pytest.approx(-sum(logps) / len(logps), rel=1e-5)
        assert step["trained_tokens"] == len(logps) == sum(e.trained_count for e in examples)


def test_token_accuracy_is_the_share_of_tokens_that_were_most_probable(make_sft_bench, model_dir):
    examples = make_examples(8)
    model = load_model(model_dir)
    right = trained = 0
    for example in examples:
        ids = torch.from_numpy(example.token_ids_T).long()
        best = model(input_ids=ids.unsqueeze(0)).logits[0].argmax(-1)
        for t in range(1, len(ids)):
            if example.trained_T[t]:
                trained += 1
                right += int(best[t - 1] == ids[t])
    bench = make_sft_bench(examples=examples, micro_batch_size=2, max_steps=1)
    bench.trainer.train()
    assert bench.steps()[0]["token_accuracy"] == pytest.approx(right / trained)


def test_every_example_comes_once_a_pass_and_no_tail_is_dropped(make_sft_bench):
    bench = make_sft_bench(examples=make_examples(11), global_batch_size=4, max_steps=None, num_epochs=2)
    bench.trainer.train()
    # 22 examples, 4 a step: the last step takes two of a third pass.
    assert [len(rows) for rows in bench.taken] == [4] * 6
    expected = [*pass_order(42, 0, 11), *pass_order(42, 1, 11), *pass_order(42, 2, 11)][:24]
    for step, rows in enumerate(bench.taken):
        assert sorted(rows) == sorted(expected[4 * step : 4 * step + 4])
    assert bench.trainer._plan.borrowed_prompts == 2


def test_batches_are_padded_on_the_right_and_the_longest_come_first():
    examples = make_examples(6, seed=3)
    batches = micro_batches(examples, 2, PAD)
    widths = [batch["input_ids"].size(1) for batch in batches]
    assert widths == sorted(widths, reverse=True)
    lengths = [length for batch in batches for length in batch["attention_mask"].sum(dim=1).tolist()]
    assert lengths == sorted((len(e.token_ids_T) for e in examples), reverse=True)
    batch = collate(examples, PAD)
    for example, ids, mask, labels in zip(
        examples, batch["input_ids"], batch["attention_mask"], batch["labels"], strict=True
    ):
        length = len(example.token_ids_T)
        assert ids.tolist() == [*example.token_ids_T, *[PAD] * (len(ids) - length)]
        assert mask.tolist() == [1] * length + [0] * (len(ids) - length)
        assert labels.tolist() == [
            t if m else -100 for t, m in zip(example.token_ids_T, example.trained_T, strict=True)
        ] + [-100] * (len(ids) - length)


class Break(TrainerCallback):
    """Makes a weight infinite in some steps, and whole again before the optimizer acts."""

    def __init__(self, model, steps):
        self.weight, self.steps = model.model.norm.weight, steps
        self.whole = None
        self.seen = []

    def on_step_begin(self, args, state, control, **_):
        if state.global_step + 1 in self.steps:
            self.whole = self.weight.detach().clone()
            with torch.no_grad():
                self.weight.fill_(math.inf)

    def on_pre_optimizer_step(self, args, state, control, *, model, optimizer, **_):
        if self.whole is not None:
            with torch.no_grad():
                self.weight.copy_(self.whole)
            self.whole = None
        self.seen.append(self._snapshot(model, optimizer))

    def on_optimizer_step(self, args, state, control, *, model, optimizer, **_):
        self.seen.append(self._snapshot(model, optimizer))

    def _snapshot(self, model, optimizer):
        moments = [v.clone() for s in optimizer.state.values() for v in s.values()]
        return [p.detach().clone() for p in model.parameters()], moments


def same(left, right):
    return len(left) == len(right) and all(map(torch.equal, left, right))


def test_a_step_that_is_not_finite_leaves_weights_and_optimizer_as_they_were(make_sft_bench):
    bench = make_sft_bench(max_steps=3, weight_decay=0.1, lr_scheduler="linear", micro_batch_size=4)
    watch = Break(bench.trainer.model, {2})
    bench.trainer.add_callback(watch)
    bench.trainer.train()
    (before1, after1, before2, after2, _, after3) = watch.seen
    assert not same(before1[0], after1[0])
    assert same(after1[0], before2[0]) and same(before2[0], after2[0])
    assert same(after1[1], after2[1])
    assert not same(after2[0], after3[0])
    one, two, three = bench.steps()
    assert [m["step_skipped"] for m in (one, two, three)] == [0.0, 1.0, 0.0]
    assert not math.isfinite(two["loss"])
    # The schedule goes on.
    assert three["learning_rate"] == pytest.approx(1e-2 / 3)
    assert any("step 2 was skipped" in line.message for line in bench.entries(LogLine))


def test_three_steps_in_a_row_that_are_not_finite_pause_the_run(make_sft_bench):
    bench = make_sft_bench(max_steps=9)
    bench.trainer.add_callback(Break(bench.trainer.model, {2, 3, 4, 5}))
    bench.trainer.train()
    assert bench.trainer.state.global_step == 4
    assert "3 steps in a row were skipped" in bench.rules.pause_reason
    assert [c.step for c in bench.entries(CheckpointSaved)] == [4]


class At(TrainerCallback):
    """Does something after a step."""

    def __init__(self, step, what):
        self.step, self.what = step, what

    def on_optimizer_step(self, args, state, control, **_):
        if state.global_step + 1 == self.step:
            self.what()


def asked(monkeypatch, name):
    monkeypatch.setattr(RunControl, name, property(lambda control: True))


@pytest.mark.parametrize("step", [1, 3])
def test_a_pause_takes_effect_after_any_step(make_sft_bench, monkeypatch, step):
    bench = make_sft_bench(max_steps=6)
    bench.trainer.add_callback(At(step, lambda: asked(monkeypatch, "pause_requested")))
    bench.trainer.train()
    assert [c.step for c in bench.entries(CheckpointSaved)] == [step]
    assert bench.rules.pause_reason == "asked to pause"
    assert bench.entries(RunStateChanged)[-1].state is RunState.PAUSING


def test_a_cancel_is_heard_between_micro_batches(make_sft_bench, monkeypatch):
    bench = make_sft_bench(max_steps=6, micro_batch_size=2)
    bench.trainer.add_callback(At(2, lambda: asked(monkeypatch, "cancel_requested")))
    with pytest.raises(RunCancelledError):
        bench.trainer.train()
    assert len(bench.steps()) == 2
    assert bench.entries(CheckpointSaved) == []


def told(bench):
    return {
        entry.step: {k: v for k, v in entry.metrics.items() if k not in TIMING_METRICS}
        for entry in bench.entries(StepCompleted)
    }


@pytest.mark.parametrize("make_adapter", [None, adapter])
@pytest.mark.parametrize("micro_batch_size", [8, 2])
def test_resume_is_exact(make_sft_bench, monkeypatch, make_adapter, micro_batch_size):
    # 13 examples, 8 a step: the runs go through several passes and stop in the middle of one.
    settings = {
        "examples": make_examples(13),
        "micro_batch_size": micro_batch_size,
        "max_steps": 10,
        "weight_decay": 0.1,
        "lr_scheduler": "cosine",
        "seed": 5,
    }

    def bench_with(attempt):
        return make_sft_bench(adapter=make_adapter() if make_adapter else None, attempt=attempt, **settings)

    straight = bench_with(1)
    straight.trainer.train()
    first = bench_with(2)
    with monkeypatch.context() as patched:
        first.trainer.add_callback(At(5, lambda: asked(patched, "pause_requested")))
        first.trainer.train()
    saved = first.entries(CheckpointSaved)[-1]
    second = bench_with(3)
    checkpoint = open_checkpoint(second.artifact_root, saved.uri)
    assert (checkpoint.step, checkpoint.prompts_consumed) == (5, 40)
    second.trainer.train(resume_from_checkpoint=str(checkpoint.folder))

    assert list(told(first)) == [1, 2, 3, 4, 5]
    assert told(first) | told(second) == told(straight)
    assert first.taken + second.taken == straight.taken
    for name, weight in straight.parameters().items():
        assert torch.equal(weight, second.parameters()[name]), name
