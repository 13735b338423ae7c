"""The parts of a job's series that are judged: rows of steps, and what can be said of some of them."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

Rows: TypeAlias = Sequence[tuple[int, Mapping[str, float]]]
"""Steps with their metrics, oldest first. A metric may be missing, NaN or infinite."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The mean reward of held-out prompts after `step`, and of the rollouts trained on up to there."""

    step: int
    held_out: float
    trained: float


@dataclass(frozen=True, slots=True)
class SeriesView:
    """What a job's series are like after its newest step.

    `head` are the first rollouts of the job and `tail` the newest ones, by the first step of each: the two
    may overlap. `steps` are the newest steps, one by one. Where an evaluation is judged, `evaluation` are its
    metrics, and `evaluations` all so far, else they are empty: each is judged when it comes, after its step.
    `begins_rollout`: whether the newest step is the first on its rollout.
    """

    head: Rows
    tail: Rows
    steps: Rows
    evaluations: Sequence[Evaluation]
    evaluation: Mapping[str, float]
    rollout_count: int
    begins_rollout: bool

    @property
    def step(self) -> int:
        """The newest step; 0 before the first one."""
        return self.steps[-1][0] if self.steps else 0


@dataclass(frozen=True, slots=True)
class Level:
    """Mean of a metric over some rows, and the standard error of that mean; both NaN without values."""

    mean: float
    error: float

    def above(self, other: Level, errors: float) -> bool:
        """Whether this mean is larger by more than so many standard errors of the difference."""
        return self.mean - other.mean > errors * math.hypot(self.error, other.error)


def values(rows: Rows, name: str) -> list[float]:
    """The finite values of a metric."""
    found = (row.get(name, math.nan) for _, row in rows)
    return [value for value in found if math.isfinite(value)]


def mean(rows: Rows, name: str) -> float:
    """Mean of a metric; NaN where fewer than half of the rows have it: the others would not speak for all."""
    found = values(rows, name)
    return statistics.fmean(found) if found and 2 * len(found) >= len(rows) else math.nan


def level(rows: Rows, name: str) -> Level:
    """Mean of a metric with its standard error. The rows are taken to be independent of each other."""
    found = values(rows, name)
    if len(found) < 2 or 2 * len(found) < len(rows):
        return Level(math.nan, math.nan)
    centre = statistics.fmean(found)
    # Not statistics.stdev: its exact fractions cost as much as all the rest of a verdict.
    variance = math.fsum((value - centre) ** 2 for value in found) / (len(found) - 1)
    return Level(centre, math.sqrt(variance / len(found)))


def median(rows: Rows, name: str) -> float:
    """Median of a metric, infinite values included; NaN where fewer than half of the rows have it."""
    found = [row.get(name, math.nan) for _, row in rows]
    found = [value for value in found if not math.isnan(value)]
    return statistics.median(found) if found and 2 * len(found) >= len(rows) else math.nan


def span(rows: Rows) -> str:
    """The steps of some rows, in words."""
    return f"steps {rows[0][0]} to {rows[-1][0]}"
