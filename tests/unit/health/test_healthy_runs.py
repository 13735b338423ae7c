"""Runs in which nothing is wrong: no alert, whatever they look like to a single metric."""

from __future__ import annotations

import json
import math
import random
from dataclasses import replace
from pathlib import Path

import pytest
from judged_series import SETTING, STEADY, Told, line, steps, told

CURVES = json.loads(Path(__file__).with_name("demo_curves.json").read_text())
"""What `plaudit demo --seed N` reported, to four digits."""


@pytest.mark.parametrize("seed", ["42", "7", "1234"])
def test_the_demo_raises_none(seed: str) -> None:
    curves = CURVES[seed]
    rows = [
        {
            **STEADY,
            "truncated_fraction": 0.0,
            **dict(zip(curves, values, strict=True)),
        }
        for values in zip(*curves.values(), strict=True)
    ]
    for row in rows:
        row["reward/exact_answer/mean"] = row["reward_mean"]
        row["reward/exact_answer/std"] = row["reward_std_batch"]
    assert len(rows) == 150
    # The policy did settle: what a collapse looks like to anything that ignores the reward.
    assert rows[-1]["policy_entropy"] < 0.1 * rows[0]["policy_entropy"]
    assert rows[-1]["zero_std_group_fraction"] >= 0.75
    assert told(rows, replace(SETTING, max_response_length=16)) == []


def test_a_policy_that_learns_its_task_and_settles_is_no_collapse() -> None:
    rows = steps(
        200,
        reward_mean=line((20, 0.3), (80, 0.99)),
        reward_std_batch=line((20, 0.46), (80, 0.1)),
        policy_entropy=line((20, 1.0), (80, 0.01)),
        zero_std_group_fraction=line((20, 0.05), (80, 0.97)),
    )
    assert told(rows) == []


def test_a_base_model_that_had_little_to_gain_may_settle_too() -> None:
    rows = steps(
        200,
        reward_mean=line((20, 0.97), (80, 0.985)),
        reward_std_batch=line((20, 0.17), (80, 0.12)),
        policy_entropy=line((20, 0.3), (80, 0.005)),
        zero_std_group_fraction=line((20, 0.78), (80, 0.98)),
    )
    assert told(rows) == []


def test_a_plateau_below_the_best_reward_with_entropy_left_is_no_collapse() -> None:
    rows = steps(
        200,
        reward_mean=line((20, 0.3), (60, 0.6)),
        policy_entropy=line((20, 1.0), (60, 0.3)),
        zero_std_group_fraction=0.4,
    )
    assert told(rows) == []


def test_reasoning_that_grows_with_its_reward_is_no_explosion_and_only_an_info() -> None:
    rows = steps(
        200,
        reward_mean=line((20, 0.2), (120, 0.7)),
        response_length_mean=line((20, 150.0), (120, 800.0)),
        truncated_fraction=line((20, 0.0), (120, 0.6)),
    )
    assert {(t.severity, t.kind) for t in told(rows)} == {("info", "reward_hacking")}


@pytest.mark.parametrize(("groups", "rollouts_per_prompt"), [(8, 8), (1, 8), (4, 2)])
@pytest.mark.parametrize("seed", range(3))
def test_noise_is_no_news(groups: int, rollouts_per_prompt: int, seed: int) -> None:
    """Binary rewards of prompts that differ, and a policy that slowly learns; small batches are noisy."""
    rng = random.Random(seed)
    rows = []
    for step in range(1, 121):
        rewards = []
        for _ in range(groups):
            ease = rng.gauss(0.0, 1.5) - 0.5 + step / 80
            share = 1 / (1 + math.exp(-ease))
            rewards.append([float(rng.random() < share) for _ in range(rollouts_per_prompt)])
        flat = [reward for group in rewards for reward in group]
        mean = sum(flat) / len(flat)
        spread = math.sqrt(sum((r - mean) ** 2 for r in flat) / (len(flat) - 1))
        rows.append(
            {
                **STEADY,
                "reward_mean": mean,
                "reward_std_batch": spread,
                "zero_std_group_fraction": sum(len(set(g)) == 1 for g in rewards) / groups,
                "policy_entropy": 0.6 * math.exp(-step / 60) * rng.lognormvariate(0, 0.2),
                "kl_div": 0.002 * step * rng.lognormvariate(0, 1.0),
                "response_length_mean": 200 * rng.lognormvariate(0, 0.2),
                "truncated_fraction": rng.random() * 0.3,
                "reward/exact_answer/mean": mean,
                "reward/exact_answer/std": spread,
            }
        )
    assert told(rows, replace(SETTING, groups_per_rollout=groups)) == []


def test_metrics_that_are_missing_or_nan_decide_nothing() -> None:
    nothing = math.nan
    gone = ("reward_mean", "policy_entropy", "kl_div", "response_length_mean")
    rows = steps(100, **dict.fromkeys(gone, nothing))
    assert told(rows) == []
    assert told([{"reward_mean": 0.5, "zero_std_group_fraction": 0.2} for _ in range(100)]) == []
    assert told([{} for _ in range(3)]) == []


def test_told_is_a_list_of_what_happened() -> None:
    """The harness itself: an alert that is there is seen."""
    assert told(steps(20, zero_std_group_fraction=1.0, reward_std_batch=0.0)) == [
        Told(20, "critical", "no_learning_signal")
    ]
