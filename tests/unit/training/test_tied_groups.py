"""Groups whose completions all get the same reward: what they teach, and what is told of them."""

import numpy as np
import pytest
import torch
from training_bench import ScriptedRollout, drifted_model, scripted_completions
from transformers import TrainerCallback

from plaudit.types.scoring import Scored
from trainer_service.journal import StepCompleted

GROUP, BATCH = 4, 16


def same_within_a_group(prompt, completion, step):
    """0, 10, 20, 30: they differ from group to group alone."""
    return {"length": Scored(10.0 * (int(completion.completion_id.split("-")[1]) // GROUP))}


class LargestGradient(TrainerCallback):
    def on_pre_optimizer_step(self, args, state, control, model, **rest):
        gradients = [p.grad for p in model.parameters() if p.grad is not None]
        self.largest = max((float(g.abs().max()) for g in gradients), default=0.0)


def step_on_ties(make_bench, model_dir, **hyperparameters):
    bench = make_bench(
        outcomes_of=same_within_a_group,
        model=drifted_model(model_dir),
        rollout=ScriptedRollout(scripted_completions(BATCH, 6, seed=3)),
        max_steps=1,
        **hyperparameters,
    )
    gradient = LargestGradient()
    bench.trainer.add_callback(gradient)
    before = bench.parameters()
    bench.trainer.train()
    moved = any(not torch.equal(before[name], after) for name, after in bench.parameters().items())
    return bench.entries(StepCompleted)[0].metrics, gradient.largest, moved


@pytest.mark.parametrize("scale_rewards", ["group", "batch", "none"])
def test_without_a_reference_they_teach_nothing_and_it_is_told(make_bench, model_dir, scale_rewards):
    metrics, gradient, moved = step_on_ties(make_bench, model_dir, kl_coef=0.0, scale_rewards=scale_rewards)
    assert (metrics["loss"], gradient, moved) == (0.0, 0.0, False)
    # Both spreads, so that a loss of 0 beside a spread in the batch is no riddle.
    assert metrics["reward_std"] == 0.0
    assert metrics["reward_std_batch"] == pytest.approx(float(np.repeat([0, 10, 20, 30], 4).std(ddof=1)))
    assert metrics["zero_std_group_fraction"] == 1.0
    # The scorer of this bench says a quarter of a second for everything.
    assert metrics["reward/length/latency_p95_seconds"] == 0.25


def test_the_kl_term_holds_for_them_too(make_bench, model_dir):
    metrics, gradient, moved = step_on_ties(make_bench, model_dir, kl_coef=0.04)
    assert metrics["zero_std_group_fraction"] == 1.0
    assert metrics["kl_div"] > 1e-3
    assert metrics["loss"] == pytest.approx(0.04 * metrics["kl_div"], rel=1e-4)
    assert moved
    assert gradient > 0.0
