"""The weighted sum of a completion's rewards."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plaudit.scoring import CombinedReward, RewardStatus, ScoredOutcome, weighted_sum
from plaudit.types.scoring import Failed, FailureCode, NotApplicable, Outcome, Scored


def outcomes(**by_name: Outcome) -> dict[str, ScoredOutcome]:
    return {name: ScoredOutcome(outcome, 0.1, datetime.now(UTC)) for name, outcome in by_name.items()}


FAILED = Failed(FailureCode.UNAVAILABLE, "judge down")


def test_values_times_weights() -> None:
    combined = weighted_sum(outcomes(a=Scored(1.0), b=Scored(0.5)), {"a": 0.7, "b": 0.3})
    assert combined == CombinedReward(RewardStatus.SCORED, 0.85)


def test_a_reward_that_does_not_apply_is_left_out_and_weights_stay() -> None:
    combined = weighted_sum(outcomes(a=Scored(1.0), b=NotApplicable()), {"a": 0.7, "b": 0.3})
    assert combined == CombinedReward(RewardStatus.SCORED, 0.7)


def test_a_failed_reward_makes_the_completion_unscored() -> None:
    combined = weighted_sum(
        outcomes(a=Scored(1.0), b=FAILED, c=NotApplicable()), {"a": 0.7, "b": 0.3, "c": 1.0}
    )
    assert combined == CombinedReward(RewardStatus.FAILED, reason="b: unavailable: judge down")


def test_nothing_applicable_is_unscored_and_no_failure() -> None:
    combined = weighted_sum(outcomes(a=NotApplicable(), b=NotApplicable()), {"a": 0.7, "b": 0.3})
    assert combined == CombinedReward(RewardStatus.NOT_APPLICABLE)
    assert combined.value is None


def test_zero_is_a_score() -> None:
    assert weighted_sum(outcomes(a=Scored(0.0)), {"a": 1.0}).value == 0.0


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1.0000001e6, -2e6])
def test_a_value_beyond_bounds_is_a_failure(value: float) -> None:
    combined = weighted_sum(outcomes(a=Scored(value), b=Scored(1.0)), {"a": 1e-6, "b": 1.0})
    assert combined.status is RewardStatus.FAILED
    assert combined.value is None
    assert "a: " in combined.reason


def test_a_sum_beyond_bounds_is_a_failure() -> None:
    combined = weighted_sum(outcomes(a=Scored(9e5), b=Scored(9e5)), {"a": 1.0, "b": 1.0})
    assert combined.status is RewardStatus.FAILED
    assert "smaller weights" in combined.reason


def test_bounds_themselves_are_fine() -> None:
    assert weighted_sum(outcomes(a=Scored(-1e6)), {"a": 1.0}).value == -1e6


@given(st.lists(st.tuples(st.floats(-100, 100), st.floats(-100, 100)), min_size=1, max_size=8))
def test_the_sum_is_the_exact_one_rounded_once(terms: list[tuple[float, float]]) -> None:
    names = [f"r{index}" for index in range(len(terms))]
    combined = weighted_sum(
        outcomes(**{name: Scored(value) for name, (value, _) in zip(names, terms, strict=True)}),
        {name: weight for name, (_, weight) in zip(names, terms, strict=True)},
    )
    taught = [(value, weight) for value, weight in terms if weight != 0.0]
    # Products are rounded to float64, their sum exactly.
    expected = float(sum(Fraction(weight * value) for value, weight in taught))
    assert combined.value == (expected if taught else None)


@pytest.mark.parametrize("outcome", [Scored(9.0), Scored(math.nan), NotApplicable(), FAILED])
def test_a_reward_of_weight_0_changes_nothing(outcome: Outcome) -> None:
    weights = {"a": 0.5, "watching": 0.0}
    assert weighted_sum(outcomes(a=Scored(3.0), watching=outcome), weights).value == 1.5
    left_out = weighted_sum(outcomes(a=NotApplicable(), watching=outcome), weights)
    assert left_out.status is RewardStatus.NOT_APPLICABLE
    failed = weighted_sum(outcomes(a=FAILED, watching=outcome), weights)
    assert failed.status is RewardStatus.FAILED
    assert "watching" not in failed.reason
