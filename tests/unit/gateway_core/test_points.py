"""Metric points: every value survives, and thinning keeps the extremes of every bucket."""

from __future__ import annotations

import contextlib
import itertools
import math
import random
import sqlite3
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from stored_jobs import add_job, add_run

from gateway.store import Store
from gateway.store._migrations import SCRIPTS, migrate
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


async def test_a_long_series_is_thinned_from_its_blocks(store: Store) -> None:
    """Of 60,000 steps in two attempts, with spikes, NaN and infinities: against all points, by hand."""
    record = await add_job(store)
    rng = random.Random(3)
    odd = {1234: 50.0, 15_000: -50.0, 33_333: math.inf, 44_444: -math.inf}
    truth = {step: odd.get(step, rng.choice([rng.random(), math.nan])) for step in range(1, 60_001)}
    truth |= dict.fromkeys(range(20_001, 21_000), math.nan)
    for attempt, from_step in ((1, 0), (2, 40_003)):
        await add_run(store, record, attempt, from_step)
    async with store.transaction() as session:
        first = {step: value for step, value in truth.items() if step <= 40_003}
        lost = dict.fromkeys(range(40_004, 40_500), 99.0)
        second = {step: value for step, value in truth.items() if step > 40_003}
        for attempt, values in ((1, first | lost), (2, second)):
            steps = [(step, {"x": value, "other": 0.0}) for step, value in values.items()]
            rng.shuffle(steps)
            await session.points.insert_steps(record.key, attempt, steps)
    async with store.snapshot() as reading:
        line = await reading.runs.line(record.key)
        for first_step, last_step, max_points in ((1, 60_000, 100), (77, 59_999, 31), (1, 60_000, 5000)):
            thin = await reading.points.series(
                record.key, "x", line, from_step=first_step, to_step=last_step, max_points=max_points
            )
            buckets = max_points // 2
            width = last_step - first_step + 1
            edges = [first_step + math.ceil(number * width / buckets) for number in range(buckets + 1)]
            if width / buckets >= 256:
                edges[1:-1] = [(edge + 32) // 64 * 64 for edge in edges[1:-1]]
            assert [p.step for p in thin] == sorted({p.step for p in thin})
            assert len(thin) <= max_points
            assert all(p.attempt == (1 if p.step <= 40_003 else 2) for p in thin)
            for start, end in itertools.pairwise(edges):
                kept = [p for p in thin if start <= p.step < end]
                numbers = [truth[step] for step in range(start, end) if not math.isnan(truth[step])]
                assert {p.value for p in kept} == {min(numbers), max(numbers)} if numbers else kept
                assert all(p.value == truth[p.step] or math.isnan(truth[p.step]) for p in kept)


async def test_a_value_that_is_reported_again_replaces_an_extreme_of_its_block(store: Store) -> None:
    record = await add_job(store)
    async with store.transaction() as session:
        await session.points.insert_steps(record.key, 1, [(step, {"x": 0.0}) for step in range(1, 40_001)])
        await session.points.insert(record.key, 1, 20_000, {"x": 7.0, "y": 1.0})
        await session.points.insert(record.key, 1, 20_000, {"x": 0.5, "y": 1.0})
        await session.points.insert(record.key, 1, 30_000, {"x": -1.0})
    async with store.snapshot() as reading:
        thin = await reading.points.series(record.key, "x", WHOLE, from_step=0, to_step=None, max_points=20)
    assert {p.step: p.value for p in thin if p.value} == {20_000: 0.5, 30_000: -1.0}


async def test_blocks_are_made_of_the_points_of_an_older_store(tmp_path: Path) -> None:
    path = tmp_path / "older.sqlite3"
    before = next(n for n, script in enumerate(SCRIPTS) if "CREATE TABLE point_blocks" in script)
    migrate(path, SCRIPTS[:before])
    values = {step: math.sin(step) for step in range(1, 5_001)} | {5: math.nan}
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("INSERT INTO metric_names VALUES (1, 'x')")
        connection.executemany("INSERT INTO points VALUES (1, 1, 1, ?, ?)", values.items())
    async with Store.open(path) as store:
        record = await add_job(store)
        assert record.key == 1
        async with store.snapshot() as reading:
            old = await reading.points.series(1, "x", WHOLE, from_step=0, to_step=None, max_points=60)
            rows = list(
                await reading.points._connection.execute_fetchall("SELECT * FROM point_blocks ORDER BY block")
            )
    assert len(rows) == 5_000 // 64 + 1
    for _, _, _, block, smallest_step, smallest, largest_step, largest in rows:
        inside = {s: v for s, v in values.items() if s // 64 == block and not math.isnan(v)}
        assert (smallest, largest) == (min(inside.values()), max(inside.values()))
        assert (inside[smallest_step], inside[largest_step]) == (smallest, largest)
    assert 50 <= len(old) <= 60
