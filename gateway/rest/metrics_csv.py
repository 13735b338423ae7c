"""Metric series as CSV: a line a step, a column a metric."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence

from gateway.jobs.series import MetricSeries


def wants_csv(accept: str) -> bool:
    """Whether an Accept header names text/csv, and not JSON before it."""
    kinds = [kind.partition(";")[0].strip().lower() for kind in accept.split(",")]
    named = [kind for kind in kinds if kind in ("text/csv", "application/json")]
    return bool(named) and named[0] == "text/csv"


def metrics_csv(series: MetricSeries, keys: Sequence[str]) -> str:
    """`step`, `attempt` and then `keys`, or all metrics where there are none. A value that is not there is
    empty; NaN and infinities are NaN, Infinity and -Infinity.
    """
    names = list(dict.fromkeys(keys)) or list(series.available_keys)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["step", "attempt", *names])
    for row in series.rows:
        writer.writerow([row.step, row.attempt, *(_cell(row.values.get(name)) for name in names)])
    return text.getvalue()


def _cell(value: float | None) -> str:
    if value is None:
        return ""
    if math.isfinite(value):
        return repr(value)
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
