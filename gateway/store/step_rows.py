"""Metric points side by side: some metrics of some steps."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from typing import Final

import aiosqlite

from gateway.store.attempts import Segment


class StepRows:
    """Reads points on one connection."""

    def __init__(self, connection: aiosqlite.Connection) -> None:
        self._connection = connection

    async def read(
        self,
        job_key: int,
        names: Iterable[str],
        line: Sequence[Segment],
        *,
        first: int,
        last: int,
        every: int = 1,
    ) -> list[tuple[int, dict[str, float]]]:
        """The metrics `names` of the steps `first` to `last`, both included, on the job's line, by step: of
        `every` steps the first, as counted from step 1.
        """
        ranges = [(s.attempt, max(first, s.after + 1), _earlier(last, s.through)) for s in line]
        cells = await self._connection.execute_fetchall(
            _READ,
            {
                "job_key": job_key,
                "names": json.dumps(list(names)),
                "line": json.dumps([r for r in ranges if r[1] <= r[2]]),
                "every": every,
            },
        )
        rows: dict[int, dict[str, float]] = {}
        for step, name, value in cells:
            rows.setdefault(step, {})[name] = math.nan if value is None else value
        return sorted(rows.items())


def _earlier(step: int, through: int | None) -> int:
    return step if through is None else min(step, through)


# Each range of each metric is one of the primary key: CROSS JOIN keeps them outside, so that it is used.
_READ: Final = """
SELECT step, metric_names.name, points.value
FROM json_each(:line) AS range
CROSS JOIN json_each(:names) AS wanted
CROSS JOIN metric_names ON metric_names.name = wanted.value
CROSS JOIN points ON job_key = :job_key AND name_id = metric_names.id AND attempt = range.value ->> 0
  AND step BETWEEN range.value ->> 1 AND range.value ->> 2
WHERE (step - 1) % :every = 0
"""
