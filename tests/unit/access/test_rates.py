"""How often somebody may call, against a clock that the test turns."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gateway.access.rates import RateLimit


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_a_burst_then_one_at_a_time() -> None:
    clock = Clock()
    limit = RateLimit(2.0, 3, clock=clock)
    assert [limit.take("a") for _ in range(3)] == [0.0, 0.0, 0.0]
    assert limit.take("a") == 0.5
    # What was refused does not count.
    assert limit.take("a") == 0.5
    clock.now += 0.25
    assert limit.take("a") == 0.25
    clock.now += 0.25
    assert limit.take("a") == 0.0
    assert limit.take("a") == 0.5
    clock.now += 100.0
    assert [limit.take("a") for _ in range(4)] == [0.0, 0.0, 0.0, 0.5]


def test_keys_do_not_pay_for_each_other_and_some_may_more() -> None:
    clock = Clock()
    limit = RateLimit(1.0, 1, clock=clock)
    assert [limit.take("a"), limit.take("b")] == [0.0, 0.0]
    assert [limit.take("a"), limit.take("b")] == [1.0, 1.0]
    assert [limit.take("c", times=10.0) for _ in range(10)] == [0.0] * 10
    assert limit.take("c", times=10.0) > 0.0


@given(st.lists(st.floats(0.0, 3.0), max_size=60))
def test_no_pattern_of_calls_gets_more_than_burst_and_rate_allow(pauses: list[float]) -> None:
    clock = Clock()
    limit = RateLimit(1.0, 5, clock=clock)
    began = clock.now
    taken = 0
    for pause in pauses:
        clock.now += pause
        taken += limit.take("a") == 0.0
        assert taken <= 5 + (clock.now - began) + 1e-6


def test_only_so_many_keys_are_remembered() -> None:
    limit = RateLimit(0.001, 1, clock=Clock())
    for number in range(20_000):
        limit.take(str(number))
    assert len(limit._over_at) == 10_000
    assert limit.take("19999") > 0.0
