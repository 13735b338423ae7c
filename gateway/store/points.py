"""Metric points in the store, and thinned series of them."""

from __future__ import annotations

import bisect
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any, Final, NamedTuple, TypeAlias

import aiosqlite

from gateway.store.attempts import Segment

_BLOCK_STEPS: Final = 64
"""As in the table point_blocks: few enough to read where a bucket ends in the middle of a block."""

_WIDE_BUCKET: Final = 256
"""Steps from which on a bucket begins where a block does: by less than 64 steps it is longer or shorter."""

_LARGEST_STEP: Final = 2**63 - 1


class Point(NamedTuple):
    """The value of a metric after a step. May be NaN or infinite."""

    # No dataclass: long series are made of ten thousands of points, and one takes a third of the time.

    step: int
    attempt: int
    value: float


class Points:
    """Reads and writes metric points on one connection.

    Beside the points stand the extremes of each block of 64 steps, from which long series are thinned.
    """

    def __init__(self, connection: aiosqlite.Connection) -> None:
        self._connection = connection

    async def insert(self, job_key: int, attempt: int, step: int, metrics: Mapping[str, float]) -> None:
        """Adds the metrics of a step; a value that the attempt reports again replaces the former."""
        await self.insert_steps(job_key, attempt, [(step, metrics)])

    async def insert_steps(
        self, job_key: int, attempt: int, steps: Iterable[tuple[int, Mapping[str, float]]]
    ) -> None:
        """Adds the metrics of several steps, as `insert` does."""
        # SQLite takes a NaN as NULL, which is what the column says.
        rows = [
            (name, job_key, attempt, step, float(value))
            for step, metrics in steps
            for name, value in metrics.items()
        ]
        names = dict.fromkeys(row[0] for row in rows)
        await self._connection.executemany(
            "INSERT OR IGNORE INTO metric_names (name) VALUES (?)", [(name,) for name in names]
        )
        await self._connection.executemany(
            "INSERT OR IGNORE INTO job_metric_names SELECT ?, id FROM metric_names WHERE name = ?",
            [(job_key, name) for name in names],
        )
        added = await self._connection.executemany(f"INSERT OR IGNORE INTO points {_POINT}", rows)
        if added.rowcount == len(rows):
            await self._connection.executemany(_WIDEN_BLOCK, rows)
            return
        # What is replaced may have been an extreme of its block; only the points tell which one is now.
        await self._connection.executemany(f"INSERT OR REPLACE INTO points {_POINT}", rows)
        blocks = dict.fromkeys((*row[:3], row[3] // _BLOCK_STEPS) for row in rows)
        await self._connection.executemany(_REMAKE_BLOCK, list(blocks))

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

        A longer series is cut into max_points // 2 buckets of equal width in steps (to 32 steps, where they
        are long); of each its smallest and its largest value stay (NaN only where a bucket holds nothing
        else). With room for one point, the newest stays.
        """
        ranges = tuple(
            (s.attempt, max(s.after + 1, from_step), min(_end(s.through), _end(to_step)))
            for s in line
            if max(s.after + 1, from_step) <= min(_end(s.through), _end(to_step))
        )
        of_metric = {"job_key": job_key, "name": name, "line": json.dumps(ranges)}
        ((count, first, last),) = await self._rows(_EXTENT, {**of_metric, "limit": max_points + 1})
        if count <= max_points:
            return _points(await self._rows(f"{_ON_LINE} ORDER BY step", of_metric))
        if max_points == 1:
            return _points(await self._rows(f"{_ON_LINE} ORDER BY step DESC LIMIT 1", of_metric))
        in_blocks, in_points = _parts_json(ranges, first, last, max_points // 2)
        parts = {"in_blocks": in_blocks, "in_points": in_points}
        return _points(await self._rows(_THINNED, {**of_metric, **parts}))

    async def _rows(self, query: str, parameters: dict[str, Any]) -> list[Any]:
        return list(await self._connection.execute_fetchall(query, parameters))


def _points(rows: Iterable[tuple[int, int, float | None]]) -> list[Point]:
    return [Point(step, attempt, math.nan if value is None else value) for step, attempt, value in rows]


def _bucket_starts(first: int, last: int, buckets: int) -> list[int]:
    """The first step of each bucket, and the step behind the last one."""
    width = last - first + 1
    starts = [first + -(-number * width // buckets) for number in range(buckets + 1)]
    if width < buckets * _WIDE_BUCKET:
        return starts
    inner = [(start + _BLOCK_STEPS // 2) // _BLOCK_STEPS * _BLOCK_STEPS for start in starts[1:-1]]
    return [first, *inner, last + 1]


_Part: TypeAlias = tuple[int, int, int, int]
"""Bucket, attempt, and the first and last step (or block) of it that lie in the bucket."""


def _parts(ranges: Iterable[tuple[int, int, int]], starts: Sequence[int]) -> tuple[list[_Part], list[_Part]]:
    """What of the ranges (attempt, first and last step) is read as whole blocks, and what point by point."""
    in_blocks, in_points = [], []
    for attempt, first, last in ranges:
        lowest = max(bisect.bisect_right(starts, first) - 1, 0)
        for bucket, (start, end) in enumerate(pairwise(starts[lowest:]), start=lowest):
            start, end = max(start, first), min(end, last + 1)
            if start >= end:
                break
            block, end_block = -(-start // _BLOCK_STEPS), end // _BLOCK_STEPS
            if block >= end_block:
                in_points.append((bucket, attempt, start, end - 1))
                continue
            in_blocks.append((bucket, attempt, block, end_block - 1))
            in_points.append((bucket, attempt, start, block * _BLOCK_STEPS - 1))
            in_points.append((bucket, attempt, end_block * _BLOCK_STEPS, end - 1))
    return in_blocks, [part for part in in_points if part[2] <= part[3]]


@lru_cache(maxsize=4)
def _parts_json(
    ranges: tuple[tuple[int, int, int], ...], first: int, last: int, buckets: int
) -> tuple[str, str]:
    """`_parts` for equal buckets, as queries take them: most metrics of a job are told of the same steps."""
    in_blocks, in_points = _parts(ranges, _bucket_starts(first, last, buckets))
    return json.dumps(in_blocks), json.dumps(in_points)


def _end(step: int | None) -> int:
    return _LARGEST_STEP if step is None else step


_POINT: Final = "SELECT ?2, id, ?3, ?4, ?5 FROM metric_names WHERE name = ?1"
_WIDEN_BLOCK: Final = """
INSERT INTO point_blocks SELECT ?2, id, ?3, ?4 / 64, ?4, ?5, ?4, ?5 FROM metric_names WHERE name = ?1
ON CONFLICT DO UPDATE SET
  smallest = iif(smallest IS NULL OR excluded.smallest < smallest, excluded.smallest, smallest),
  smallest_step =
    iif(smallest IS NULL OR excluded.smallest < smallest, excluded.smallest_step, smallest_step),
  largest = iif(largest IS NULL OR excluded.largest > largest, excluded.largest, largest),
  largest_step = iif(largest IS NULL OR excluded.largest > largest, excluded.largest_step, largest_step)
WHERE smallest IS NULL OR excluded.smallest < smallest OR excluded.largest > largest
"""
# SQLite takes the bare columns beside a min() or max() from the row that holds it.
_REMAKE_BLOCK: Final = """
WITH inside AS (
  SELECT id AS name_id, step, value FROM metric_names JOIN points ON name_id = id
  WHERE name = ?1 AND job_key = ?2 AND attempt = ?3 AND step BETWEEN ?4 * 64 AND ?4 * 64 + 63
)
INSERT OR REPLACE INTO point_blocks
SELECT ?2, name_id, ?3, ?4, smallest_step, smallest, largest_step, largest FROM
  (SELECT name_id, step AS smallest_step, min(value) AS smallest FROM inside),
  (SELECT step AS largest_step, max(value) AS largest FROM inside)
"""

# Below, each part is a range of a primary key. CROSS JOIN keeps the parts outside, so that it is used as one.
_ON_LINE: Final = """
WITH part AS MATERIALIZED (
  SELECT metric_names.id AS name_id, value ->> 0 AS attempt, value ->> 1 AS first, value ->> 2 AS last
  FROM json_each(:line) JOIN metric_names ON name = :name
)
SELECT step, attempt, value FROM part CROSS JOIN points USING (name_id, attempt)
WHERE job_key = :job_key AND step BETWEEN first AND last
"""
_EXTENT: Final = """
WITH part AS MATERIALIZED (
  SELECT metric_names.id AS part_name, value ->> 0 AS part_attempt,
    value ->> 1 AS first, value ->> 2 AS last
  FROM json_each(:line) JOIN metric_names ON name = :name
), ends AS (
  SELECT
    (SELECT min(step) FROM points WHERE job_key = :job_key AND name_id = part_name
     AND attempt = part_attempt AND step BETWEEN first AND last) AS smallest,
    (SELECT max(step) FROM points WHERE job_key = :job_key AND name_id = part_name
     AND attempt = part_attempt AND step BETWEEN first AND last) AS largest
  FROM part
), some AS (
  SELECT 1 FROM part CROSS JOIN points ON name_id = part_name AND attempt = part_attempt
  WHERE job_key = :job_key AND step BETWEEN first AND last LIMIT :limit
)
SELECT (SELECT count(*) FROM some), min(smallest), max(largest) FROM ends
"""
# Of points, the extremes of each part come first, by one look at its range that keeps a single row: to group
# them all would sort them all. Blocks are few.
_THINNED: Final = """
WITH in_blocks AS MATERIALIZED (
  SELECT metric_names.id AS name_id, value ->> 0 AS bucket, value ->> 1 AS attempt,
    value ->> 2 AS first, value ->> 3 AS last
  FROM json_each(:in_blocks) JOIN metric_names ON name = :name
), in_points AS MATERIALIZED (
  SELECT metric_names.id AS name_id, value ->> 0 AS bucket, value ->> 1 AS attempt,
    value ->> 2 AS first, value ->> 3 AS last
  FROM json_each(:in_points) JOIN metric_names ON name = :name
), block AS NOT MATERIALIZED (
  SELECT * FROM in_blocks CROSS JOIN point_blocks USING (name_id, attempt)
  WHERE job_key = :job_key AND block BETWEEN first AND last
), low AS MATERIALIZED (
  SELECT bucket, name_id, attempt, (
    SELECT step FROM points
    WHERE job_key = :job_key AND name_id = part.name_id AND attempt = part.attempt
      AND step BETWEEN first AND last
    ORDER BY value NULLS LAST LIMIT 1
  ) AS step FROM in_points AS part
), high AS MATERIALIZED (
  SELECT bucket, name_id, attempt, (
    SELECT step FROM points
    WHERE job_key = :job_key AND name_id = part.name_id AND attempt = part.attempt
      AND step BETWEEN first AND last
    ORDER BY value DESC NULLS LAST LIMIT 1
  ) AS step FROM in_points AS part
)
SELECT step, attempt, min(value) AS value FROM (
  SELECT bucket, smallest_step AS step, attempt, smallest AS value FROM block
  UNION ALL
  SELECT bucket, step, attempt, value FROM low CROSS JOIN points USING (name_id, attempt, step)
  WHERE job_key = :job_key
) GROUP BY bucket
UNION
SELECT step, attempt, max(value) AS value FROM (
  SELECT bucket, largest_step AS step, attempt, largest AS value FROM block
  UNION ALL
  SELECT bucket, step, attempt, value FROM high CROSS JOIN points USING (name_id, attempt, step)
  WHERE job_key = :job_key
) GROUP BY bucket
ORDER BY step
"""
