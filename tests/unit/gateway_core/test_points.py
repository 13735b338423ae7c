"""Metric points: every value survives, and thinning keeps the extremes of every bucket."""

from __future__ import annotations

import math
import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from stored_jobs import add_job, add_run

from gateway.store import Store
from gateway.store.attempts import Segment, line_of, on_line
from gateway.store.points import Point

WHOLE = [Segment(1, 0, None)]


@pytest.mark.parametrize(
    "value", [math.nan, math.inf, -math.inf, 0.0, -0.0, 1e-308, 1.7976931348623157e308, 0.1]
)
async def test_a_value_comes_back_as_it_was(store: Store, value: float) -> None:
    record = await add_job(store)
    async with store.transaction() as session:
        await session.points.insert(record.key, 1, 1, {"loss": value, "other": 1})
        await session.points.insert(record.key, 1, 2, {"loss": 2.0})
    async with store.snapshot() as reading:
        (first, _) = await reading.points.series(
            record.key, "loss", WHOLE, from_step=0, to_step=None, max_points=10
        )
        assert await reading.points.names(record.key) == ["loss", "other"]
    assert (first.step, first.attempt) == (1, 1)
    assert math.isnan(first.value) if math.isnan(value) else first.value == value


values = st.one_of(
    st.floats(width=32, allow_nan=False),
    st.sampled_from([math.nan, math.inf, -math.inf, 0.0, 1.0]),
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    points=st.dictionaries(st.integers(1, 400), values, min_size=1, max_size=120),
    max_points=st.integers(1, 60),
)
async def test_thinning_keeps_the_smallest_and_the_largest_of_every_bucket(
    tmp_path: Path, points: dict[int, float], max_points: int
) -> None:
    async with Store.open(tmp_path / "thinning.sqlite3") as store:
        record = await add_job(store)
        async with store.transaction() as session:
            for step, value in points.items():
                await session.points.insert(record.key, 1, step, {"x": value})
        async with store.snapshot() as reading:
            thin = await reading.points.series(
                record.key, "x", WHOLE, from_step=0, to_step=None, max_points=max_points
            )
    steps = [point.step for point in thin]
    assert steps == sorted(set(steps))
    for point in thin:
        assert point.value == points[point.step] or math.isnan(points[point.step])
    if len(points) <= max_points:
        assert steps == sorted(points)
        return
    assert 1 <= len(thin) <= max_points
    if max_points == 1:
        assert steps == [max(points)]
        return
    first, last, buckets = min(points), max(points), max_points // 2
    width = last - first + 1
    for bucket in range(buckets):
        inside = [v for s, v in points.items() if (s - first) * buckets // width == bucket]
        kept = [p.value for p in thin if (p.step - first) * buckets // width == bucket]
        numbers = [v for v in inside if not math.isnan(v)]
        if numbers:
            assert {min(numbers), max(numbers)} == set(kept)
        elif inside:
            assert all(math.isnan(v) for v in kept)
            assert kept


@given(st.lists(st.integers(0, 30), max_size=6))
def test_the_line_takes_each_step_from_the_newest_attempt_that_has_not_been_superseded(
    from_steps: list[int],
) -> None:
    attempts = list(enumerate(from_steps, start=1))
    line = line_of(attempts)
    for attempt, from_step in attempts:
        for step in range(1, 40):
            later = [f for a, f in attempts if a > attempt]
            superseded = any(step > f for f in later)
            assert on_line(line, attempt, step) == (step > from_step and not superseded)
    # No step stands on the line twice.
    for step in range(1, 40):
        assert sum(on_line(line, attempt, step) for attempt, _ in attempts) <= 1


async def test_superseded_points_are_kept_and_not_shown(store: Store) -> None:
    record = await add_job(store)
    for attempt, from_step in ((1, 0), (2, 4), (3, 4)):
        await add_run(store, record, attempt, from_step)
    async with store.transaction() as session:
        for attempt, steps in ((1, range(1, 9)), (2, range(5, 7)), (3, range(5, 10))):
            for step in steps:
                await session.points.insert(record.key, attempt, step, {"x": attempt * 100 + step})
    async with store.snapshot() as reading:
        line = await reading.runs.line(record.key)
        shown = await reading.points.series(record.key, "x", line, from_step=2, to_step=8, max_points=50)
        rows = list(await reading.points._connection.execute_fetchall("SELECT count(*) FROM points"))
    assert shown == [
        *(Point(step, 1, 100.0 + step) for step in (2, 3, 4)),
        *(Point(step, 3, 300.0 + step) for step in (5, 6, 7, 8)),
    ]
    assert rows[0][0] == 8 + 2 + 5


async def test_a_long_series_is_thinned_by_the_store(store: Store) -> None:
    """A spike of one step in 20,000 is never lost."""
    record = await add_job(store)
    rng = random.Random(3)
    spikes = {1234: 50.0, 15_000: -50.0}
    async with store.transaction() as session:
        await session.points.insert(record.key, 1, 1, {"x": 0.0, "y": 0.0})
        await session.points._connection.executemany(
            "INSERT OR REPLACE INTO points SELECT ?, id, 1, ?, ? FROM metric_names WHERE name = 'x'",
            [(record.key, step, spikes.get(step, rng.random())) for step in range(1, 20_001)],
        )
    async with store.snapshot() as reading:
        thin = await reading.points.series(record.key, "x", WHOLE, from_step=0, to_step=None, max_points=500)
    assert len(thin) <= 500
    assert {p.step: p.value for p in thin if abs(p.value) > 1} == spikes
