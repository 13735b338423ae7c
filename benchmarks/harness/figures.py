"""Figures of a benchmark: one line of JSON each on stdout, and nothing else there."""

from __future__ import annotations

import json
import os
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

_DIGITS = 4


@dataclass(frozen=True, slots=True)
class Spread:
    """Median and range of repeated measurements, all in one unit."""

    median: float
    lower_quartile: float
    upper_quartile: float
    low: float
    high: float
    repeats: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """`values` is one measurement a repeat, at least one. Raises ValueError where there is none."""
        if not values:
            raise ValueError("there is no measurement to take the median of")
        lower, median, upper = (
            statistics.quantiles(values, n=4, method="inclusive") if len(values) > 1 else [values[0]] * 3
        )
        return cls(median, lower, upper, min(values), max(values), len(values))


def paired_ratio(ours: Sequence[float], rival: Sequence[float]) -> Spread:
    """Ours / rival, repeat by repeat.

    The two of a pair were measured one after the other, so that the load of the machine, which comes and
    goes, weighs on both. Raises ValueError where the numbers of repeats differ.
    """
    return Spread.of([a / b for a, b in zip(ours, rival, strict=True)])


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure.

    `value` is judged against `goal`, both in `unit`; without a goal it is there to be looked at. `ours` and
    `rival` are what was measured on each side, as far as there are two sides. `holds` overrules the plain
    comparison, for a bar that can be met in more than one way.
    """

    bar: str
    value: float
    unit: str
    goal: float | None = None
    sense: Literal["at_most", "at_least"] = "at_most"
    ours: float | None = None
    rival: float | None = None
    spread: Spread | None = None
    holds: bool | None = None
    more: Mapping[str, Any] = field(default_factory=dict)

    def verdict(self) -> bool | None:
        """Whether the goal is reached; None without a goal."""
        if self.goal is None or self.holds is not None:
            return self.holds
        return self.value <= self.goal if self.sense == "at_most" else self.value >= self.goal

    def line(self) -> str:
        """The figure as one line of JSON. `goal`, `holds` and `rival` are null where there is none."""
        spread = self.spread
        return json.dumps(
            {
                "bar": self.bar,
                "value": _rounded(self.value),
                "goal": self.goal,
                "holds": self.verdict(),
                "rival": _rounded(self.rival),
                "ours": _rounded(self.ours),
                "unit": self.unit,
                **({"sense": self.sense} if self.goal is not None else {}),
                **(
                    {
                        "quartiles": [_rounded(spread.lower_quartile), _rounded(spread.upper_quartile)],
                        "range": [_rounded(spread.low), _rounded(spread.high)],
                        "repeats": spread.repeats,
                    }
                    if spread is not None
                    else {}
                ),
                **self.more,
            },
            allow_nan=False,
        )


def emit(figure: Figure) -> None:
    """Prints a figure on stdout."""
    print(figure.line(), flush=True)


def progress(message: str) -> None:
    """Tells people how far it is, on stderr, with the load of the machine: it colours every figure."""
    print(f"[load {os.getloadavg()[0]:.1f}] {message}", file=sys.stderr, flush=True)


def _rounded(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.{_DIGITS}g}")
