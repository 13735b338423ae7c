"""Which replicas are set aside, by hand and by property."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plaudit.scoring._outliers import (
    BREAK_WEIGHT,
    FIRST_SECONDS,
    MOST_SECONDS,
    TRIAL_ANSWERS,
    Outliers,
)


def test_a_replica_that_fails_everything_beside_one_that_fails_nothing_is_set_aside() -> None:
    outliers = Outliers(["good", "bad"])
    assert not outliers.record("bad", 0, 64, 0.0)  # nobody to compare with: it may be the completions
    assert not outliers.record("good", 8, 0, 0.1)
    assert not outliers.is_aside("bad")
    assert outliers.record("bad", 0, 1, 0.2)
    assert [outliers.is_aside(place) for place in ("good", "bad")] == [False, True]
    (told,) = outliers.told(1.2)
    assert (told.place, told.failed_share, told.seconds_left) == ("bad", 1.0, FIRST_SECONDS - 1.0)


@pytest.mark.parametrize(
    ("good", "bad", "expected"),
    [
        (0, 7, False),  # too few to tell
        (0, 8, True),
        (4, 4, False),  # half of eight against none of a hundred: 4 in 8 may be chance beside 0.29
        (100, 100, True),
        (71, 29, False),  # above, and not well above
        (69, 31, True),
    ],
)
def test_how_much_above_the_others_is_well_above(good: int, bad: int, expected: bool) -> None:
    outliers = Outliers(["a", "b"])
    outliers.record("b", 100, 0, 0.0) if (good, bad) != (4, 4) else outliers.record("b", 71, 29, 0.0)
    assert outliers.record("a", good, bad, 0.0) is expected


def test_failures_that_all_have_alike_set_nobody_aside() -> None:
    outliers = Outliers("abc")
    for _ in range(50):
        for place in "abc":
            assert not outliers.record(place, 4, 12, 0.0)


def test_where_the_others_come_to_fail_too_it_is_taken_back_at_once() -> None:
    outliers = Outliers("ab")
    outliers.record("b", 64, 0, 0.0)
    assert outliers.record("a", 0, 64, 0.0)
    outliers.record("b", 0, 400, 0.5)
    assert not outliers.is_aside("a")
    assert not outliers.is_aside("b")


def test_one_that_breaks_after_a_long_good_time_is_known_by_its_failures_in_a_row() -> None:
    outliers = Outliers("ab")
    for place in "ab":
        outliers.record(place, 240, 0, 0.0)
    assert not outliers.record("a", 0, 15, 1.0)  # 15 of 255
    assert outliers.record("a", 0, 1, 1.1)
    # What the other answers meanwhile does not bring it back before its time, nor does what it was once.
    assert not outliers.record("b", 64, 0, 2.0)
    assert outliers.is_aside("a")
    # A success between them, and they are not in a row.
    outliers = Outliers("ab")
    for place in "ab":
        outliers.record(place, 240, 0, 0.0)
    assert not outliers.record("a", 0, 15, 1.0)
    assert not outliers.record("a", 1, 0, 1.1)
    assert not outliers.record("a", 0, 15, 1.2)


def test_of_three_two_may_be_broken() -> None:
    outliers = Outliers("abc")
    outliers.record("a", 0, 200, 0.0)
    outliers.record("b", 0, 200, 0.0)
    outliers.record("c", 20, 0, 0.0)
    assert outliers.record("a", 0, 1, 0.0)
    assert outliers.record("b", 0, 1, 0.0)
    assert [outliers.is_aside(place) for place in "abc"] == [True, True, False]


def test_the_last_one_in_good_standing_gives_its_place_to_the_one_that_fails_least() -> None:
    outliers = Outliers("ab")
    outliers.record("b", 200, 0, 0.0)
    assert outliers.record("a", 60, 40, 0.0)
    for _ in range(20):
        outliers.record("b", 0, 64, 1.0)
    assert [outliers.is_aside(place) for place in "ab"] == [False, True]


def test_each_failed_trial_doubles_the_time_and_a_passed_one_ends_it() -> None:
    outliers = Outliers("ab")
    outliers.record("b", 64, 0, 0.0)
    outliers.record("a", 0, 64, 0.0)
    now, waits = 0.0, []
    for _ in range(8):
        (told,) = outliers.told(now)
        waits.append(told.seconds_left)
        assert not outliers.is_due("a", now + told.seconds_left - 0.01)
        now += told.seconds_left
        assert outliers.is_due("a", now)
        outliers.begin_trial("a", TRIAL_ANSWERS)
        assert outliers.record("a", 5, 3, now)  # 3 of 8 are enough, without waiting for more
    assert waits == [5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 300.0, 300.0]
    assert waits[0] == FIRST_SECONDS
    assert waits[-1] == MOST_SECONDS
    now += MOST_SECONDS
    outliers.begin_trial("a", TRIAL_ANSWERS)
    assert not outliers.record("a", 5, 0, now)
    assert outliers.is_aside("a")
    assert not outliers.record("a", 1, 2, now)
    assert not outliers.is_aside("a")
    # Soon after, it goes on where it was; long after, from the start.
    assert outliers.record("a", 0, 64, now + 1.0)
    assert outliers.is_due("a", now + 1.0 + MOST_SECONDS)
    assert not outliers.is_due("a", now + MOST_SECONDS)


def test_a_replica_that_was_long_back_starts_from_the_first_again() -> None:
    outliers = Outliers("ab")
    outliers.record("b", 64, 0, 0.0)
    outliers.record("a", 0, 64, 0.0)
    outliers.begin_trial("a", 1)
    outliers.record("a", 1, 0, 10.0)
    outliers.record("a", 0, 64, 10_000.0)
    assert outliers.is_due("a", 10_000.0 + FIRST_SECONDS)


def test_a_stream_that_breaks_fails_a_trial_and_one_break_sets_nobody_aside() -> None:
    outliers = Outliers("ab")
    outliers.record("b", 256, 0, 0.0)
    assert not outliers.record("a", 0, BREAK_WEIGHT, 0.0)
    assert outliers.record("a", 0, BREAK_WEIGHT, 1.0)
    outliers.begin_trial("a", TRIAL_ANSWERS)
    assert outliers.record("a", 0, BREAK_WEIGHT, 6.0)
    busy = Outliers("ab")
    for _ in range(4):
        busy.record("a", 64, 0, 0.0)
        busy.record("b", 64, 0, 0.0)
    assert not busy.record("a", 0, BREAK_WEIGHT, 1.0)


def test_what_is_old_is_forgotten() -> None:
    outliers = Outliers("ab")
    outliers.record("b", 1_000_000, 0, 0.0)
    outliers.record("a", 1_000_000, 0, 0.0)
    assert any(outliers.record("a", 0, 64, 1.0) for _ in range(4))


EVENTS = st.lists(
    st.tuples(
        st.sampled_from("abc"), st.integers(0, 64), st.integers(0, 64), st.floats(0.0, 60.0), st.booleans()
    ),
    max_size=80,
)


@settings(deadline=None, max_examples=200)  # the machine may be loaded
@given(EVENTS)
def test_never_all_and_never_for_longer_than_the_most(
    events: list[tuple[str, int, int, float, bool]],
) -> None:
    outliers = Outliers("abc")
    now = 0.0
    for place, good, bad, seconds, is_trial in events:
        now += seconds
        if is_trial and outliers.is_due(place, now):
            outliers.begin_trial(place, TRIAL_ANSWERS)
        was_aside = outliers.is_aside(place)
        set_aside = outliers.record(place, good, bad, now)
        told = list(outliers.told(now))
        assert len(told) < 3
        assert all(0.0 <= one.failed_share <= 1.0 for one in told)
        assert all(0.0 <= one.seconds_left <= MOST_SECONDS for one in told)
        assert not set_aside or bad
        assert outliers.is_aside(place) or not (set_aside and was_aside)


@settings(deadline=None, max_examples=50, derandomize=True)
@given(st.integers(0, 2**32), st.floats(0.0, 1.0))
def test_replicas_that_fail_by_the_same_chance_stay(seed: int, chance: float) -> None:
    source = random.Random(seed)
    outliers = Outliers("ab")
    for place in source.choices("ab", k=60):
        bad = sum(source.random() < chance for _ in range(32))
        assert not outliers.record(place, 32 - bad, bad, 0.0)
