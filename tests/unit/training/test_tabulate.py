"""Outcomes become rows of rewards: failed, not applicable and scored are three things, none of them 0."""

from datetime import UTC, datetime

import numpy as np
import pytest

from plaudit.scoring import CompletionScores, ScoredOutcome
from plaudit.types.scoring import Failed, FailureCode, NotApplicable, Scored
from trainer_service.training.metrics import std_of
from trainer_service.training.samples import describe_held_out_failed, tabulate

WEIGHTS = {"a": 0.7, "b": 0.3}
GONE = Failed(FailureCode.UNAVAILABLE, "gone")


def scores(a, b):
    now = datetime.now(UTC)
    return CompletionScores({"a": ScoredOutcome(a, 0.1, now), "b": ScoredOutcome(b, 0.2, now)})


def test_each_kind():
    table = tabulate(
        [
            scores(Scored(1.0), Scored(0.5)),
            scores(Scored(1.0), GONE),
            scores(NotApplicable(), Scored(0.5)),
            scores(NotApplicable(), NotApplicable()),
            scores(NotApplicable(), GONE),
            None,
        ],
        WEIGHTS,
    )
    np.testing.assert_array_equal(table.sums_B, [0.7 * 1.0 + 0.3 * 0.5, *[np.nan], 0.15, *[np.nan] * 3])
    assert table.failed_B.tolist() == [False, True, False, False, True, True]
    assert table.not_applicable_B.tolist() == [False, False, False, True, False, False]
    # A failed reward takes the whole row with it; one that does not apply only itself.
    np.testing.assert_array_equal(
        table.rewards_BF, [[1.0, 0.5], [np.nan] * 2, [np.nan, 0.5], *[[np.nan] * 2] * 3]
    )


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 2e6, -2e6])
def test_what_is_no_sensible_number_is_a_failure(value):
    table = tabulate([scores(Scored(value), Scored(0.0))], WEIGHTS)
    assert table.failed_B.tolist() == [True] and np.isnan(table.sums_B).all()


def test_a_sum_beyond_bounds_is_a_failure():
    table = tabulate([scores(Scored(9e5), Scored(9e5))], {"a": 1.0, "b": 1.0})
    assert table.failed_B.tolist() == [True]


def test_one_value_shows_no_spread():
    assert np.isnan(std_of(np.array([0.5]))) and np.isnan(std_of(np.array([])))
    assert std_of(np.array([0.5, 0.5])) == 0.0
    assert std_of(np.array([0.0, 2.0])) == pytest.approx(2**0.5)


def test_failures_of_held_out_rewards_are_told_apart_with_their_causes():
    good, taught_fails = scores(Scored(1.0), Scored(0.0)), scores(GONE, Scored(0.0))
    assert describe_held_out_failed([good, taught_fails, None], ("a",)) == ""
    told = describe_held_out_failed([scores(Scored(1.0), GONE), scores(GONE, GONE), good, None], ("a",))
    assert told.startswith("on 2 of 4 completions a reward that is held out (weight 0) failed")
    assert told.endswith(": 2 times b: unavailable (gone)")
