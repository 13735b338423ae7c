"""The advantage against an independent calculation, one number at a time, in exact fractions."""

import math
import statistics
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainer_service.training.advantages import compute_advantages

NAN = float("nan")


def oracle(groups: list[list[float | None]], scale: str) -> list[list[float | None]]:
    """Scalar reference: mean and deviation in exact arithmetic, None where a completion teaches nothing."""
    kept = [[r for r in group if r is not None] for group in groups]
    kept = [group if len(group) >= 2 else [] for group in kept]
    everything = [r for group in kept for r in group]
    result: list[list[float | None]] = []
    for group, scored in zip(groups, kept, strict=True):
        row: list[float | None] = []
        for reward in group:
            if reward is None or not scored:
                row.append(None)
                continue
            if all(r == scored[0] for r in scored):
                row.append(0.0)
                continue
            difference = Fraction(reward) - sum(map(Fraction, scored)) / len(scored)
            deviation = {
                "group": lambda scored=scored: exact_stdev(scored) + 1e-4,
                "batch": lambda: exact_stdev(everything) + 1e-4,
                "none": lambda: 1.0,
            }[scale]()
            row.append(float(difference) / deviation)
        result.append(row)
    return result


def exact_stdev(values: list[float]) -> float:
    return math.sqrt(statistics.variance(map(Fraction, values)))


reward = st.one_of(
    st.none(),
    st.sampled_from([0.0, 1.0, 0.9, 0.1, -1.0, 1e6, -1e6]),
    st.floats(-10, 10, allow_nan=False),
    st.floats(-1e6, 1e6, allow_nan=False),
)


@st.composite
def batches(draw):
    size = draw(st.integers(2, 6))
    return draw(st.lists(st.lists(reward, min_size=size, max_size=size), min_size=1, max_size=5))


@given(batches(), st.sampled_from(["group", "batch", "none"]))
@settings(deadline=None, max_examples=200)
def test_agrees_with_a_scalar_oracle(groups, scale):
    flat = [NAN if r is None else r for group in groups for r in group]
    result = compute_advantages(flat, len(groups[0]), scale)
    expected = [value for row in oracle(groups, scale) for value in row]
    for got, kept, want in zip(result.advantages_B, result.kept_B, expected, strict=True):
        assert kept == (want is not None)
        assert got == pytest.approx(want or 0.0, rel=1e-9, abs=1e-9)


@given(batches(), st.sampled_from(["group", "batch", "none"]))
@settings(deadline=None, max_examples=100)
def test_what_is_unscored_might_as_well_not_exist(groups, scale):
    """Permuting a group's completions permutes its advantages; nothing depends on where the gaps are."""
    flat = [NAN if r is None else r for group in groups for r in group]
    size = len(groups[0])
    turned = [NAN if r is None else r for group in groups for r in group[::-1]]
    forward = compute_advantages(flat, size, scale).advantages_B.reshape(-1, size)
    backward = compute_advantages(turned, size, scale).advantages_B.reshape(-1, size)
    np.testing.assert_allclose(backward[:, ::-1], forward, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("value", [0.9, 0.1, 1 / 3, 1e6, -0.7 * 0.9 - 0.3 * 0.2])
@pytest.mark.parametrize("scale", ["group", "batch", "none"])
@pytest.mark.parametrize("count", [8, 3, 7])
def test_equal_rewards_give_exactly_nothing(value, scale, count):
    # Three times 0.1 has a mean of 0.10000000000000002 in floats.
    result = compute_advantages([value] * count, count, scale)
    assert result.advantages_B.tolist() == [0.0] * count
    assert result.tied_G.tolist() == [True]
    assert result.group_std_G.tolist() == [0.0]
    assert result.kept_B.all()


def test_by_hand():
    # mean 0.5, deviation sqrt((4 * 0.25) / 3) = 0.5773502691896258
    result = compute_advantages([1.0, 0.0, 1.0, 0.0], 4, "group")
    expected = 0.5 / (0.5773502691896258 + 1e-4)
    np.testing.assert_allclose(result.advantages_B, [expected, -expected, expected, -expected], rtol=1e-12)


def test_low_variance_is_not_shrunk():
    """Groups whose rewards differ in the fifth digit keep a deviation of 7.07e-6."""
    result = compute_advantages([1.0, 1.00001, 2.0, 2.00001], 2, "group")
    np.testing.assert_allclose(result.group_std_G, [7.0710678e-06] * 2, rtol=1e-6)
    np.testing.assert_allclose(
        result.advantages_B, np.array([-1, 1, -1, 1]) * 5e-06 / (7.0710678e-06 + 1e-4), rtol=1e-6
    )


def test_constant_groups_have_no_signal_though_the_batch_varies():
    result = compute_advantages([0.0, 0.0, 10.0, 10.0], 2, "batch")
    assert result.advantages_B.tolist() == [0.0] * 4
    assert result.tied_G.tolist() == [True, True]


def test_single_survivor_teaches_nothing():
    result = compute_advantages([1.0, NAN, NAN, 0.0, 1.0, 0.0], 3, "group")
    assert result.small_G.tolist() == [True, False]
    assert result.kept_B.tolist() == [False] * 3 + [True] * 3
    assert result.advantages_B[:3].tolist() == [0.0] * 3
    assert math.isnan(result.group_std_G[0])


def test_groups_in_which_everything_failed():
    result = compute_advantages([NAN] * 6, 3, "batch")
    assert not result.kept_B.any()
    assert result.small_G.all()
    assert not result.tied_G.any()
    assert result.advantages_B.tolist() == [0.0] * 6


def test_the_batch_deviation_is_that_of_what_is_kept():
    # The lonely 100.0 leaves the batch's deviation as it leaves everything else: kept are 0, 1, 0, 1.
    result = compute_advantages([0.0, 1.0, 0.0, 1.0, 100.0, NAN], 2, "batch")
    deviation = statistics.stdev([0, 1, 0, 1])
    np.testing.assert_allclose(
        result.advantages_B[:4], np.array([-0.5, 0.5, -0.5, 0.5]) / (deviation + 1e-4), rtol=1e-12
    )
