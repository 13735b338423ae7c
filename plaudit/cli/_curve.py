"""A curve in the characters of a terminal."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

_LEVELS = " ▁▂▃▄▅▆▇█"


def draw_curve(points: Sequence[tuple[int, float]], *, width: int, height: int) -> str:
    """Draws (step, value) points as columns of blocks, with the largest and smallest value at the left.

    Neighbouring points share a column, which then shows their mean. Values that are not finite are left out.
    """
    finite = [(step, value) for step, value in points if math.isfinite(value)]
    if not finite:
        return "\n".join([""] * height)
    columns = _columns(finite, width)
    low, high = min(columns), max(columns)
    labels = [f"{high:8.3f} ┤", *["         │"] * (height - 2), f"{low:8.3f} ┤"]
    fills = [1 + _fraction(value, low, high) * (height * 8 - 1) for value in columns]
    rows = []
    for row in range(height):
        base = (height - 1 - row) * 8
        rows.append(labels[row] + "".join(_LEVELS[max(0, min(8, round(fill - base)))] for fill in fills))
    return "\n".join(rows)


def _fraction(value: float, low: float, high: float) -> float:
    """Where a value lies between the extremes, 0 to 1; halved first, as their distance may overflow."""
    return 0.5 if low / 2 == high / 2 else (value / 2 - low / 2) / (high / 2 - low / 2)


def _columns(points: Sequence[tuple[int, float]], width: int) -> list[float]:
    values = [value for _, value in sorted(points)]
    if len(values) <= width:
        return values
    edges = [round(i * len(values) / width) for i in range(width + 1)]
    return [sum(value / (b - a) for value in values[a:b]) for a, b in itertools.pairwise(edges)]


def draw_overlaid(
    curves: Sequence[Sequence[tuple[int, float]]], marks: Sequence[str], *, width: int, height: int
) -> str:
    """Draws several series of (step, value) on common axes, each by its mark; `*` where marks meet.

    Below the rows stands the first and the last step. Values that are not finite are left out.
    """
    finite = [[point for point in curve if math.isfinite(point[1])] for curve in curves]
    points = [point for curve in finite for point in curve]
    if not points:
        return "\n".join([""] * (height + 1))
    first, last = min(step for step, _ in points), max(step for step, _ in points)
    low, high = min(value for _, value in points), max(value for _, value in points)
    cells = [[" "] * width for _ in range(height)]
    for curve, mark in zip(finite, marks, strict=True):
        for column, value in _by_column(curve, first, last, width).items():
            row = height - 1 - round(_fraction(value, low, high) * (height - 1))
            cells[row][column] = mark if cells[row][column] in (" ", mark) else "*"
    labels = [f"{high:8.3g} ┤", *["         │"] * (height - 2), f"{low:8.3g} ┤"]
    steps = f"{first}{str(last).rjust(width - len(str(first)))}"
    return "\n".join(
        [*(label + "".join(row) for label, row in zip(labels, cells, strict=True)), " " * 10 + steps]
    )


def _by_column(curve: Sequence[tuple[int, float]], first: int, last: int, width: int) -> dict[int, float]:
    """The mean of the values that share a column."""
    values: dict[int, list[float]] = {}
    for step, value in curve:
        column = round((step - first) / max(last - first, 1) * (width - 1))
        values.setdefault(column, []).append(value)
    return {column: sum(v / len(shared) for v in shared) for column, shared in values.items()}
