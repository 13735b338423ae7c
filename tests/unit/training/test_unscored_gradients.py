"""A step with unscored completions has the gradient of plain TRL's step on the batch without them.

The other side is TRL's own trainer: its loss, its reference model, its log-probabilities, on the completions
that are left, with advantages worked out here by hand.
"""

import statistics

import pytest
import torch
from datasets import Dataset
from training_bench import (
    END,
    PAD,
    ScriptedRollout,
    drifted_model,
    load_tokenizer,
    scripted_completions,
)
from transformers import TrainerCallback
from trl import GRPOConfig, GRPOTrainer
from trl.trainer.utils import pad

from plaudit.types.scoring import Failed, FailureCode, NotApplicable, Scored
from trainer_service.journal import StepCompleted

GROUP, BATCH, LONGEST = 4, 16, 6
WEIGHTS = {"style": 0.7, "answer": 0.3}

# Of 16 completions: "answer" fails for a third (5); group 1 keeps a single one, so that it teaches nothing
# at all; "style" does not apply to completion 13, where the rest of the sum stands alone.
FAILED = {2, 4, 5, 7, 11}
NOT_APPLICABLE = {13}


def value(index: int, name: str) -> float:
    return ((index * 7 + len(name) * 3) % 11) / 3.0


def two_rewards(prompt, completion, step):
    index = int(completion.completion_id.split("-")[1])
    style = NotApplicable() if index in NOT_APPLICABLE else Scored(value(index, "style"))
    answer = Failed(FailureCode.UNAVAILABLE, "gone") if index in FAILED else Scored(value(index, "answer"))
    return {"style": style, "answer": answer}


def expected_advantages() -> dict[int, float]:
    """By index; completions that are not in it teach nothing."""
    advantages = {}
    for first in range(0, BATCH, GROUP):
        sums = {}
        for index in range(first, first + GROUP):
            if index not in FAILED:
                style = 0.0 if index in NOT_APPLICABLE else 0.7 * value(index, "style")
                sums[index] = style + 0.3 * value(index, "answer")
        if len(sums) >= 2:
            mean, deviation = statistics.fmean(sums.values()), statistics.stdev(sums.values())
            advantages |= {index: (total - mean) / (deviation + 1e-4) for index, total in sums.items()}
    return advantages


class Gradients(TrainerCallback):
    """Keeps the gradients of each step, as the optimizer is about to get them."""

    def __init__(self):
        self.steps = []

    def on_pre_optimizer_step(self, args, state, control, *, model, **_):
        self.steps.append(
            {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
        )


def our_gradient(make_bench, completions, accumulation, **hyperparameters):
    bench = make_bench(
        outcomes_of=two_rewards,
        weights=WEIGHTS,
        rollout=ScriptedRollout(completions),
        micro_batch_size=BATCH // accumulation,
        max_steps=1,
        max_response_length=LONGEST,
        max_grad_norm=0.0,
        **hyperparameters,
    )
    assert bench.trainer.prompt_sharing.exact, "completions of a group are to share a pass over their prompt"
    gradients = Gradients()
    bench.trainer.add_callback(gradients)
    bench.trainer.train()
    return gradients.steps[0], bench


def plain_trl(model_dir, tmp_path, loss_type, beta):
    config = GRPOConfig(
        output_dir=str(tmp_path / "plain"),
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        report_to=[],
        num_generations=2,
        per_device_train_batch_size=2,
        max_steps=1,
        max_completion_length=LONGEST,
        beta=beta,
        loss_type=loss_type,
    )
    return GRPOTrainer(
        model=drifted_model(model_dir),
        reward_funcs=[lambda **_: []],
        args=config,
        train_dataset=Dataset.from_dict({"prompt": ["w2"] * 4}),
        processing_class=load_tokenizer(model_dir),
    )


def plain_trl_gradient(trainer, rows_of_micro_batches, samples, advantages, beta):
    """TRL's loss and gradient over micro-batches that hold only completions with an advantage."""
    trainer.model.train()
    trainer.current_gradient_accumulation_steps = len(rows_of_micro_batches)
    trainer.args.steps_per_generation = len(rows_of_micro_batches)
    tokens = sum(len(samples[row][1]) for rows in rows_of_micro_batches for row in rows)
    trainer.model.zero_grad()
    total = 0.0
    for rows in rows_of_micro_batches:
        prompts = [torch.tensor(samples[row][0]) for row in rows]
        completions = [torch.tensor(samples[row][1]) for row in rows]
        inputs = {
            "prompt_ids": pad(prompts, padding_value=PAD, padding_side="left"),
            "prompt_mask": pad([torch.ones_like(p) for p in prompts], padding_value=0, padding_side="left"),
            "completion_ids": pad(completions, padding_value=PAD),
            "completion_mask": pad([torch.ones_like(c) for c in completions], padding_value=0),
            "advantages": torch.tensor([advantages[row] for row in rows]),
            "num_items_in_batch": torch.tensor(tokens),
        }
        if beta:
            with torch.no_grad():
                inputs["ref_per_token_logps"] = trainer._get_per_token_logps_and_entropies(
                    trainer.ref_model,
                    torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], dim=1),
                    torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], dim=1),
                    inputs["completion_ids"].size(1),
                )[0]
        loss = trainer._compute_loss(trainer.model, inputs)
        loss.backward()
        total += loss.item()
    return {name: p.grad.clone() for name, p in trainer.model.named_parameters()}, total


def assert_same_gradient(ours, theirs):
    assert ours.keys() == theirs.keys()
    scale = max(gradient.abs().max() for gradient in theirs.values())
    assert scale > 1e-3, "a gradient of nothing proves nothing"
    for name in ours:
        torch.testing.assert_close(ours[name], theirs[name], rtol=1e-4, atol=float(scale) * 1e-5, msg=name)


def micro_batches_of(bench, rows, advantages):
    """Which rows each of our micro-batches holds, by the tokens in them; unscored ones left out."""
    numbers = {(tuple(prompt), tuple(completion)): row for row, (prompt, completion) in enumerate(rows)}
    assert len(numbers) == BATCH
    parts = []
    for batch in bench.trainer._micro_batches:
        found = []
        for prompt, prompt_mask, completion in zip(
            batch["prompt_ids"], batch["prompt_mask"], batch["completion_ids"], strict=True
        ):
            tokens = completion.tolist()
            tokens = tokens[: tokens.index(END) + 1] if END in tokens else tokens
            found.append(numbers[tuple(prompt[prompt_mask.bool()].tolist()), tuple(tokens)])
        parts.append([row for row in found if row in advantages])
    return [part for part in parts if part]


@pytest.mark.parametrize("accumulation", [1, 4])
@pytest.mark.parametrize("kl_coef", [0.0, 0.04])
@pytest.mark.parametrize("loss_type", ["dapo", "grpo", "dr_grpo", "bnpo"])
def test_gradient_is_that_of_the_batch_without_the_unscored(
    make_bench, model_dir, tmp_path, loss_type, kl_coef, accumulation
):
    completions = scripted_completions(BATCH, LONGEST, seed=3)
    ours, bench = our_gradient(
        make_bench,
        completions,
        accumulation,
        model=drifted_model(model_dir),
        loss_type=loss_type,
        kl_coef=kl_coef,
    )
    rows = [
        (list(sample.prompt.token_ids), completions[index][0])
        for index, sample in enumerate(bench.rollouts[0].samples_B)
    ]
    advantages = expected_advantages()
    # bnpo divides by the tokens of each micro-batch, so the other side has to be divided as ours was; to the
    # other losses it must make no difference.
    parts = micro_batches_of(bench, rows, advantages) if loss_type == "bnpo" else [sorted(advantages)]
    trainer = plain_trl(model_dir, tmp_path, loss_type, kl_coef)
    theirs, loss = plain_trl_gradient(trainer, parts, rows, advantages, kl_coef)

    assert_same_gradient(ours, theirs)
    metrics = bench.entries(StepCompleted)[0].metrics
    assert metrics["loss"] == pytest.approx(loss, rel=1e-4, abs=1e-6)
    assert metrics["reward/answer/failed_fraction"] == pytest.approx(5 / 16)
    assert metrics["reward/style/failed_fraction"] == 0.0
    assert metrics["unscored_fraction"] == pytest.approx(5 / 16)
    assert metrics["small_group_fraction"] == 0.25
    assert metrics["step_skipped"] == 0.0
    assert (metrics["kl_div"] > 1e-3) is bool(kl_coef)
