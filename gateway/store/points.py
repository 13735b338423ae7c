"""Metric points in the store, and thinned series of them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import aiosqlite

from gateway.store.attempts import Segment


@dataclass(frozen=True, slots=True)
class Point:
    """The value of a metric after a step. May be NaN or infinite."""

    step: int
    attempt: int
    value: float


class Points:
    """Reads and writes metric points on one connection."""

    def __init__(self, connection: aiosqlite.Connection) -> None:
        self._connection = connection

    async def insert(self, job_key: int, attempt: int, step: int, metrics: Mapping[str, float]) -> None:
        """Adds the metrics of a step; a value that the attempt reports again replaces the former."""
        names = [(name,) for name in metrics]
        await self._connection.executemany("INSERT OR IGNORE INTO metric_names (name) VALUES (?)", names)
        await self._connection.executemany(
            "INSERT OR IGNORE INTO job_metric_names SELECT ?, id FROM metric_names WHERE name = ?",
            [(job_key, name) for name in metrics],
        )
        await self._connection.executemany(
            "INSERT OR REPLACE INTO points SELECT ?, id, ?, ?, ? FROM metric_names WHERE name = ?",
            # SQLite takes a NaN as NULL, which is what the column says.
            [(job_key, attempt, step, float(value), name) for name, value in metrics.items()],
        )

    async def names(self, job_key: int) -> list[str]:
        """Every name that the job has reported, sorted."""
        rows = await self._connection.execute_fetchall(
            "SELECT name FROM metric_names JOIN job_metric_names ON id = name_id WHERE job_key = ? "
            "ORDER BY name",
            (job_key,),
        )
        return [row[0] for row in rows]

    async def series(
        self,
        job_key: int,
        name: str,
        line: Sequence[Segment],
        *,
        from_step: int,
        to_step: int | None,
        max_points: int,
    ) -> list[Point]:
        """The metric's points on the job's line in from_step..to_step, by step, thinned to `max_points`.

        A longer series is cut into max_points // 2 buckets of equal width in steps; of each its smallest
        and its largest value stay (NaN only where a bucket holds nothing else). With room for one point,
        the newest stays.
        """
        ranges = [(s.attempt, max(s.after + 1, from_step), min(_end(s.through), _end(to_step))) for s in line]
        ranges = [(attempt, first, last) for attempt, first, last in ranges if first <= last]
        if not ranges:
            return []
        # A range of the primary key for each attempt; they do not overlap.
        on_line = " UNION ALL ".join([_ONE_RANGE] * len(ranges))
        parameters = [
            value for attempt, first, last in ranges for value in (job_key, name, attempt, first, last)
        ]
        rows = list(await self._connection.execute_fetchall(f"{_EXTENT} ({on_line})", parameters))
        count, first_step, last_step = rows[0]
        if count <= max_points:
            chosen = await self._connection.execute_fetchall(f"{on_line} ORDER BY step", parameters)
        elif max_points == 1:
            chosen = await self._connection.execute_fetchall(
                f"{on_line} ORDER BY step DESC LIMIT 1", parameters
            )
        else:
            # SQLite takes the bare columns beside a min() or max() from the row that holds it.
            bucket = f"(step - {first_step}) * {max_points // 2} / {last_step - first_step + 1}"
            chosen = await self._connection.execute_fetchall(
                f"WITH line AS ({on_line}) {_SMALLEST} GROUP BY {bucket} UNION {_LARGEST} GROUP BY {bucket} "
                "ORDER BY step",
                parameters,
            )
        return [Point(step, attempt, math.nan if value is None else value) for step, attempt, value in chosen]


_ONE_RANGE: Final = (
    "SELECT step, attempt, value FROM points WHERE job_key = ? "
    "AND name_id = (SELECT id FROM metric_names WHERE name = ?) AND attempt = ? AND step BETWEEN ? AND ?"
)
_EXTENT: Final = "SELECT count(*), min(step), max(step) FROM"
_SMALLEST: Final = "SELECT step, attempt, min(value) AS value FROM line"
_LARGEST: Final = "SELECT step, attempt, max(value) AS value FROM line"
_LARGEST_STEP: Final = 2**63 - 1


def _end(step: int | None) -> int:
    return _LARGEST_STEP if step is None else step
