"""The summary of a rescore: against numpy, in one go and in parts, kept as JSON in between."""

import numpy as np
import pytest

from gateway.jobs.completions import RewardOutcome, ScoredCompletion
from gateway.rescoring.rescore import RescoreResult
from gateway.rescoring.tally import Tally


def result(old, new, group="1-g0", outcomes=None, attempt=1):
    completion = ScoredCompletion(1, attempt, group, "1-0", "p", "c", 3, False, old, None, ())
    if outcomes is None:
        outcomes = (RewardOutcome("a", "scored", new),) if new is not None else (failure("a"),)
    return RescoreResult(completion, new, outcomes)


def failure(name, status="internal", why="it broke"):
    return RewardOutcome(name, status, None, why)


def test_moments_are_those_of_numpy_however_the_results_come():
    source = np.random.default_rng(3)
    old = source.normal(1e5, 1.0, 1000)  # nearly the same: naive sums would lose their digits
    new = 0.3 * old + source.normal(0, 1.0, 1000)
    results = [
        result(float(o), float(n), group=f"g{i}") for i, (o, n) in enumerate(zip(old, new, strict=True))
    ]
    tally = Tally()
    for start in range(0, 1000, 70):
        tally = Tally.model_validate_json(tally.model_dump_json())
        tally.add(results[start : start + 70])
    summary = tally.summary(["a"])
    assert summary.compared_count == 1000
    assert summary.old_mean == pytest.approx(old.mean(), rel=1e-12)
    assert summary.new_mean == pytest.approx(new.mean(), rel=1e-12)
    assert summary.correlation == pytest.approx(np.corrcoef(old, new)[0, 1], rel=1e-6)
    assert summary.rewards[0].mean == pytest.approx(new.mean(), rel=1e-12)


def test_ranks_are_compared_within_groups_alone():
    tally = Tally()
    # g0: 1<2<3 becomes 1<3<2: pairs (1,2) and (1,3) agree, (2,3) does not. g1: a tie against an order, and
    # a pair that both tie, which orders nothing.
    tally.add([result(1.0, 1.0), result(2.0, 3.0), result(3.0, 2.0)])
    tally.add([result(0.0, 5.0, "g1"), result(0.0, 6.0, "g1"), result(0.0, 6.0, "g1")])
    summary = tally.summary(["a"])
    assert summary.ordered_pair_count == 3 + 2
    assert summary.rank_agreement == pytest.approx(2 / 5)


def test_a_group_of_two_attempts_is_two_groups():
    tally = Tally()
    tally.add([result(0.0, 1.0, attempt=1), result(1.0, 2.0, attempt=2)])
    assert tally.summary(["a"]).ordered_pair_count == 0


def test_what_cannot_be_compared_is_counted_apart_and_is_never_0():
    tally = Tally()
    tally.add(
        [
            result(1.0, None),
            result(None, 0.5),
            result(1.0, None, outcomes=(failure("a", "not_applicable", "no column"),)),
            result(
                1.0, None, outcomes=(RewardOutcome("a", "scored", 1.0), failure("b", "timeout", "too slow"))
            ),
        ]
    )
    summary = tally.summary(["a", "b"])
    assert (summary.compared_count, summary.failed_count, summary.not_applicable_count) == (0, 2, 1)
    assert summary.old_mean is summary.new_mean is summary.correlation is summary.rank_agreement is None
    a, b = summary.rewards
    assert (a.scored_count, a.failed_count, a.not_applicable_count, a.mean) == (2, 1, 1, 0.75)
    assert (b.scored_count, b.failed_count, b.mean, b.failure) == (0, 1, None, "timeout: too slow")


def test_a_constant_side_has_no_correlation():
    tally = Tally()
    tally.add([result(0.0, 1.0), result(0.0, 2.0)])
    assert tally.summary(["a"]).correlation is None
