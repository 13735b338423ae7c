"""Limits per minute, by hand: seconds 0 to 60 hold at most the limit, whatever was estimated."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reward_service.judge._pace import Window


def test_a_full_window_opens_as_its_entries_leave() -> None:
    window = Window(3)
    for second in (0.0, 10.0, 20.0):
        assert window.delay(1, second) == 0.0
        window.add(1, second)
    assert window.delay(1, 30.0) == 30.0  # at 60 the first leaves
    assert window.delay(2, 30.0) == 40.0  # at 70 the second
    assert window.delay(3, 30.0) == 50.0
    assert window.delay(1, 60.0) == 0.0


def test_what_is_more_than_the_limit_goes_alone() -> None:
    window = Window(100)
    assert window.delay(500, 0.0) == 0.0
    window.add(500, 0.0)
    assert window.delay(1, 1.0) == 59.0
    assert window.delay(500, 60.0) == 0.0


def test_a_correction_opens_and_closes() -> None:
    window = Window(100)
    entry = window.add(90, 0.0)
    assert window.delay(20, 1.0) == 59.0
    window.correct(entry, 40)
    assert window.delay(20, 1.0) == 0.0
    window.correct(entry, 200)
    assert window.delay(20, 1.0) == 59.0
    # one that has left the window changes nothing in it
    assert window.delay(20, 61.0) == 0.0
    window.add(50, 61.0)
    window.correct(entry, 1000)
    assert window.delay(50, 62.0) == 0.0
    assert window.delay(51, 62.0) == 59.0


@given(
    limit=st.integers(1, 50),
    calls=st.lists(
        st.tuples(st.floats(0, 30), st.integers(1, 60), st.integers(0, 60)), min_size=1, max_size=60
    ),
)
def test_no_minute_holds_more_than_the_limit(limit: int, calls: list[tuple[float, int, int]]) -> None:
    """Against a plain sum over each minute, for calls that wait as long as they are told."""
    window = Window(limit)
    now = 0.0
    taken: list[tuple[float, int]] = []
    for pause, estimate, _ in calls:
        now += pause
        now += window.delay(estimate, now)
        window.add(min(estimate, limit), now)
        taken.append((now, min(estimate, limit)))
    for end, _ in taken:
        # rounding may let an entry leave a moment early
        in_minute = sum(amount for at, amount in taken if end - 60.0 + 1e-6 < at <= end)
        assert in_minute <= limit


@pytest.mark.parametrize("amounts", [[1, 1, 1], [0.1] * 30])
def test_sums_do_not_drift(amounts: list[float]) -> None:
    window = Window(3)
    for round_number in range(100):
        for amount in amounts:
            window.add(amount, round_number * 100.0)
        assert window.delay(1, round_number * 100.0 + 60.0) == 0.0
