"""Metric series: one line over all attempts, thinned."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from gateway.events import StepMetrics
from gateway.store import Session
from gateway.store.jobs import JobRecord
from plaudit.errors import FieldViolation, InvalidArgumentError

DEFAULT_MAX_POINTS: Final = 500
LARGEST_MAX_POINTS: Final = 5000
LARGEST_STEP: Final = 2**63 - 1
"""Of what the store can compare; whatever is asked for beyond it is as good as the end."""


@dataclass(frozen=True, slots=True)
class MetricSeries:
    """`rows` by ascending step, each with the values that survived thinning; `available_keys` is every name
    that the job has reported, sorted; `latest_step` the newest step, 0 where there is none.
    """

    rows: Sequence[StepMetrics]
    available_keys: Sequence[str]
    latest_step: int


@dataclass(frozen=True, slots=True)
class SeriesQuery:
    """What is wanted of a job's metrics. No `keys`: all; `to_step` None: to the end; `max_points` a key."""

    keys: tuple[str, ...]
    from_step: int
    to_step: int | None
    max_points: int


def checked_query(keys: Sequence[str], from_step: int, to_step: int | None, max_points: int) -> SeriesQuery:
    """The query of a request; `to_step` None: to the end, `max_points` 0: the default. Raises
    InvalidArgumentError.
    """
    violations = [
        FieldViolation(name, f"{value} is below 0; leave it out for the {meaning}")
        for name, value, meaning in (
            ("from_step", from_step, "first step"),
            ("to_step", to_step, "last step"),
            ("max_points", max_points, f"default, {DEFAULT_MAX_POINTS}"),
        )
        if value is not None and value < 0
    ]
    if max_points > LARGEST_MAX_POINTS:
        violations.append(
            FieldViolation(
                "max_points", f"{max_points} is too many; at most {LARGEST_MAX_POINTS}, or narrow the steps"
            )
        )
    if to_step is not None and 0 <= to_step < from_step:
        violations.append(
            FieldViolation("to_step", f"{to_step} lies before from_step ({from_step}); swap them")
        )
    if violations:
        raise InvalidArgumentError(violations)
    return SeriesQuery(
        tuple(dict.fromkeys(keys)),
        min(from_step, LARGEST_STEP),
        None if to_step is None else min(to_step, LARGEST_STEP),
        max_points or DEFAULT_MAX_POINTS,
    )


async def read_series(session: Session, record: JobRecord, query: SeriesQuery) -> MetricSeries:
    """Reads the series; a key that the job has not reported has no values."""
    line = await session.runs.line(record.key)
    available = await session.points.names(record.key)
    values: dict[int, dict[str, float]] = {}
    attempts: dict[int, int] = {}
    names = query.keys or available
    # All asked at once, so that the connection goes from one to the next without a wait for this loop.
    series = await asyncio.gather(
        *(
            session.points.series(
                record.key,
                name,
                line,
                from_step=query.from_step,
                to_step=query.to_step,
                max_points=query.max_points,
            )
            for name in names
        )
    )
    for name, points in zip(names, series, strict=True):
        for point in points:
            values.setdefault(point.step, {})[name] = point.value
            attempts[point.step] = point.attempt
    rows = [StepMetrics(step, attempts[step], values[step]) for step in sorted(values)]
    return MetricSeries(rows, available, record.job.current_step)


async def newest_metrics(session: Session, record: JobRecord, *, through: int) -> dict[str, float]:
    """By name, the newest value on the job's line up to a step: what lost attempts came to is none of it."""
    query = SeriesQuery((), 0, through, max_points=1)
    series = await read_series(session, record, query)
    return {name: value for row in series.rows for name, value in row.values.items()}
