"""What skips a step, what a skipped step leaves alone, and what pauses a run."""

import math

import pytest
import torch
from training_bench import ScriptedRollout, length_reward, scripted_completions

from plaudit.types.scoring import Failed, FailureCode, NotApplicable, Scored
from plaudit.types.statuses import RunState
from trainer_service.journal import CheckpointSaved, LogLine, RunStateChanged, StepCompleted
from trainer_service.training.reporting import RunCancelledError

GONE = Failed(FailureCode.UNAVAILABLE, "connection refused")


class Snapshots:
    """Weights and optimizer as they were after each step; wraps on_step_end of the rules."""

    def __init__(self, bench):
        self.weights, self.optimizer = [], []
        told = bench.rules.on_step_end

        def on_step_end(args, state, control, **rest):
            self.weights.append(bench.parameters())
            self.optimizer.append(
                [{k: v.clone() for k, v in s.items()} for s in bench.trainer.optimizer.state.values()]
            )
            return told(args, state, control, **rest)

        bench.rules.on_step_end = on_step_end


def same(left, right):
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(same(left[k], right[k]) for k in left)
    if isinstance(left, list):
        return len(left) == len(right) and all(map(same, left, right))
    return torch.equal(left, right)


def steps_of(bench):
    return [entry.metrics for entry in bench.entries(StepCompleted)]


def test_a_step_with_nothing_scored_leaves_everything_as_it_was(make_bench):
    bench = make_bench(
        outcomes_of=lambda p, c, step: {"length": GONE} if step == 2 else length_reward(p, c, step),
        max_steps=3,
        weight_decay=0.1,
        kl_coef=0.04,
        lr_scheduler="linear",
        max_unscored_fraction=1.0,
    )
    before = bench.parameters()
    after = Snapshots(bench)
    bench.trainer.train()

    assert same(after.weights[0], after.weights[1])
    assert same(after.optimizer[0], after.optimizer[1])
    assert not same(before, after.weights[0])
    assert not same(after.weights[1], after.weights[2])
    first, second, third = steps_of(bench)
    assert [m["step_skipped"] for m in (first, second, third)] == [0.0, 1.0, 0.0]
    assert second["unscored_fraction"] == 1.0
    assert second["reward/length/failed_fraction"] == 1.0
    assert math.isnan(second["reward_mean"])
    assert math.isnan(second["loss"])
    # The schedule goes on: 3/3, 2/3, 1/3 of the learning rate.
    assert [m["learning_rate"] for m in (first, second, third)] == pytest.approx([1e-2, 2e-2 / 3, 1e-2 / 3])
    lines = [line for line in bench.entries(LogLine) if line.level == "warning"]
    assert any("step 2 was skipped" in line.message for line in lines)
    assert bench.rules.pause_reason is None


def test_a_first_step_with_nothing_scored(make_bench):
    bench = make_bench(outcomes_of=lambda *_: {"length": NotApplicable()}, max_steps=1, weight_decay=0.1)
    before = bench.parameters()
    bench.trainer.train()
    assert same(before, bench.parameters())
    (metrics,) = steps_of(bench)
    assert metrics["not_applicable_fraction"] == 1.0
    assert metrics["unscored_fraction"] == 0.0
    assert metrics["reward/length/failed_fraction"] == 0.0


def poison_log_probs(bench, at_pass):
    """Makes the policy's log-probabilities infinite in one pass with gradients, counted from 1."""
    honest, passes = bench.trainer._get_per_token_logps_and_entropies, []

    def poisoned(*args, **kwargs):
        logps, entropies, rest = honest(*args, **kwargs)
        if torch.is_grad_enabled():
            passes.append(1)
            if len(passes) in at_pass:
                logps = logps * math.inf
                bench.trainer._policy_pass = logps.detach(), entropies.detach()
        return logps, entropies, rest

    bench.trainer._get_per_token_logps_and_entropies = poisoned


def poison_gradient(bench, at_pass):
    """Makes one weight's gradient infinite in one backward pass, while the loss is a number."""
    passes = []

    def poisoned(gradient):
        passes.append(1)
        return gradient * math.inf if len(passes) in at_pass else gradient

    next(iter(bench.trainer.model.parameters())).register_hook(poisoned)


@pytest.mark.parametrize("max_grad_norm", [0.0, 1.0])
@pytest.mark.parametrize("poison", [poison_log_probs, poison_gradient])
def test_a_step_that_is_not_finite_is_skipped_whole(make_bench, poison, max_grad_norm):
    # Two micro-batches a step: pass 3 is the first of step 2, its second one is sound.
    bench = make_bench(max_steps=3, weight_decay=0.1, max_grad_norm=max_grad_norm, micro_batch_size=8)
    after = Snapshots(bench)
    poison(bench, {3})
    bench.trainer.train()

    assert same(after.weights[0], after.weights[1])
    assert same(after.optimizer[0], after.optimizer[1])
    assert not same(after.weights[1], after.weights[2])
    assert all(torch.isfinite(p).all() for p in bench.parameters().values())
    assert [m["step_skipped"] for m in steps_of(bench)] == [0.0, 1.0, 0.0]
    assert not math.isfinite(steps_of(bench)[1]["grad_norm"])
    assert bench.rules.pause_reason is None


@pytest.mark.parametrize(("kl_coef", "told"), [(0.04, False), (500.0, True)])
def test_where_a_penalty_overflows_it_is_named(make_bench, kl_coef, told):
    bench = make_bench(max_steps=3, micro_batch_size=16, kl_coef=kl_coef)
    poison_gradient(bench, {1, 2, 3})
    bench.trainer.train()
    assert "3 steps in a row were skipped" in bench.rules.pause_reason
    assert ("; a lower kl_coef than 500, a lower learning_rate or dtype" in bench.rules.pause_reason) is told


def test_a_gradient_whose_norm_overflows_is_not_finite(make_bench):
    """Clipping would turn it into zeros, and Adam would step on its momentum alone."""
    bench = make_bench(max_steps=2, max_grad_norm=1.0, micro_batch_size=16)
    after = Snapshots(bench)
    passes = []

    def huge(gradient):
        passes.append(1)
        return torch.full_like(gradient, 1e30) if len(passes) == 2 else gradient

    next(iter(bench.trainer.model.parameters())).register_hook(huge)
    bench.trainer.train()
    assert [m["step_skipped"] for m in steps_of(bench)] == [0.0, 1.0]
    assert same(after.weights[0], after.weights[1])


def test_a_rollout_with_logits_that_are_not_finite_is_skipped(make_bench):
    rollout = ScriptedRollout(scripted_completions(16, 6), non_finite_calls={2})
    bench = make_bench(rollout=rollout, max_steps=3)
    after = Snapshots(bench)
    bench.trainer.train()
    assert [m["step_skipped"] for m in steps_of(bench)] == [0.0, 1.0, 0.0]
    assert [m["step_not_finite"] for m in steps_of(bench)] == [0.0, 1.0, 0.0]
    assert same(after.weights[0], after.weights[1])
    # What broke off was never sent to be scored.
    sent = [c.completion_id for _, c, step, _, _ in bench.scorer.submitted if step == 2]
    assert len(sent) == 15 and "2-0" not in sent
    # Nobody waits for the others, and the job does not pause for want of scores.
    assert math.isnan(steps_of(bench)[1]["reward_mean"])
    assert bench.rules.pause_reason is None


def test_three_steps_in_a_row_that_are_not_finite_pause_the_run(make_bench):
    bench = make_bench(max_steps=9, micro_batch_size=16)
    poison_log_probs(bench, {2, 4, 5, 6})
    bench.trainer.train()
    assert [m["step_skipped"] for m in steps_of(bench)] == [0, 1, 0, 1, 1, 1]
    assert "3 steps in a row" in bench.rules.pause_reason
    assert bench.entries(CheckpointSaved)[-1].step == 6
    (pausing,) = bench.entries(RunStateChanged)
    assert pausing.state is RunState.PAUSING and pausing.reason == bench.rules.pause_reason


def test_too_many_unscored_completions_pause_before_their_step(make_bench):
    def outcomes_of(prompt, completion, step):
        index = int(completion.completion_id.split("-")[1])
        return {"length": GONE if step == 3 and index < 9 else Scored(float(index))}

    bench = make_bench(outcomes_of=outcomes_of, max_steps=8, num_iterations=2, max_unscored_fraction=0.5)
    after = Snapshots(bench)
    bench.trainer.train()
    # 9 of 16 is too many in step 3, whose rollout step 4 would use too: both are left to who resumes.
    assert [m["step_skipped"] for m in steps_of(bench)] == [0.0, 0.0, 1.0]
    assert [m["step_not_finite"] for m in steps_of(bench)] == [0.0, 0.0, 0.0]
    assert steps_of(bench)[-1]["unscored_fraction"] == 9 / 16
    assert same(after.weights[1], after.weights[2]) and same(after.optimizer[1], after.optimizer[2])
    assert [c.step for c in bench.entries(CheckpointSaved)] == [2]
    assert bench.rules.leaves_its_last_step
    assert bench.rules.pause_reason == (
        "9 of the 16 completions of step 3 could not be scored, more than max_unscored_fraction (0.5) "
        "allows: 9 times length: unavailable (connection refused)"
    )


@pytest.mark.parametrize(
    ("step", "checkpoints"), [(1, []), (2, [1]), (3, [1, 2])], ids=["first", "second", "last"]
)
def test_the_checkpoint_before_an_unscored_step_is_taken_once(make_bench, step, checkpoints):
    def outcomes_of(prompt, completion, at):
        return {"length": GONE} if at == step else length_reward(prompt, completion, at)

    bench = make_bench(outcomes_of=outcomes_of, max_steps=3, checkpoint_every=1.0, checkpoint_keep=9)
    bench.trainer.train()
    assert [c.step for c in bench.entries(CheckpointSaved)] == checkpoints
    assert len(steps_of(bench)) == step
    assert "could not be scored" in bench.rules.pause_reason


def test_half_of_them_is_not_too_many(make_bench):
    def outcomes_of(prompt, completion, step):
        index = int(completion.completion_id.split("-")[1])
        return {"length": GONE if index < 8 else Scored(float(index))}

    bench = make_bench(outcomes_of=outcomes_of, max_steps=2, max_unscored_fraction=0.5)
    bench.trainer.train()
    assert len(steps_of(bench)) == 2 and bench.rules.pause_reason is None


def test_rewards_that_apply_to_nothing_pause_after_three_rollouts(make_bench):
    def outcomes_of(prompt, completion, step):
        index = int(completion.completion_id.split("-")[1])
        if step == 3 and index == 0:  # one that was scored, though it teaches nothing alone
            return {"length": Scored(1.0)}
        return {"length": GONE if index < 2 else NotApplicable("the row has no column gold")}

    bench = make_bench(outcomes_of=outcomes_of, max_steps=9)
    bench.trainer.train()
    # 1 and 2, then 4 to 6 are of nothing at all.
    assert len(steps_of(bench)) == 6
    assert bench.rules.pause_reason == (
        "3 rollouts in a row taught nothing, the last of them that of step 6: no reward applied to 14 of its "
        "16 completions, and the others could not be scored; check the columns that the rewards read, or "
        "take rows to which one applies; length says: the row has no column gold"
    )
    assert bench.entries(CheckpointSaved)[-1].step == 6
    (pausing,) = bench.entries(RunStateChanged)
    assert pausing.state is RunState.PAUSING and pausing.reason == bench.rules.pause_reason


def test_a_spent_budget_pauses(make_bench):
    bench = make_bench(max_steps=5)
    bench.scorer.reason = "judge: budget of 3 USD is spent"
    bench.trainer.train()
    assert len(steps_of(bench)) == 1
    assert bench.rules.pause_reason == "judge: budget of 3 USD is spent"


def test_a_full_disk_pauses_while_there_is_room_to_save(make_bench, monkeypatch):
    monkeypatch.setattr("trainer_service.training.step_rules.LEAST_FREE_BYTES", 10**18)
    bench = make_bench(max_steps=5)
    bench.trainer.train()
    assert "GB are free under" in bench.rules.pause_reason
    assert [c.step for c in bench.entries(CheckpointSaved)] == [1]


def test_a_pause_waits_for_the_boundary_and_leaves_a_checkpoint(make_bench):
    bench = make_bench(max_steps=8, num_iterations=2, checkpoint_every=8.0)

    def ask(prompt, completion, step):
        if step == 3:
            bench.control._obey({"command": "pause"})
        return length_reward(prompt, completion, step)

    bench.scorer.outcomes_of = ask
    bench.trainer.train()
    assert len(steps_of(bench)) == 4
    assert [c.step for c in bench.entries(CheckpointSaved)] == [4]
    assert [e.state for e in bench.entries(RunStateChanged)] == [RunState.PAUSING]
    assert bench.rules.pause_reason == "asked to pause"


def test_a_cancel_does_not_wait(make_bench):
    bench = make_bench(max_steps=8)

    def ask(prompt, completion, step):
        bench.control._obey({"command": "cancel", "grace_seconds": 30.0})
        return length_reward(prompt, completion, step)

    bench.scorer.outcomes_of = ask
    with pytest.raises(RunCancelledError):
        bench.trainer.train()
    assert steps_of(bench) == []
    assert [e.state for e in bench.entries(RunStateChanged)] == [RunState.CANCELLING]


def test_checkpoints_fall_on_generation_boundaries(make_bench):
    bench = make_bench(max_steps=10, num_iterations=2, checkpoint_every=3.0, checkpoint_keep=10)
    bench.trainer.train()
    assert [c.step for c in bench.entries(CheckpointSaved)] == [4, 8, 10]
