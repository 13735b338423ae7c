"""One line out of several attempts: which steps of which attempt count."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Segment:
    """Steps above `after`, up to and with `through` (None: to the end), of one attempt. What is told of step
    0, before the first one, is above -1.
    """

    attempt: int
    after: int
    through: int | None


def line_of(attempts: Iterable[tuple[int, int]]) -> list[Segment]:
    """The segments that make up a job's line, by ascending step, of (attempt, step that it started from).

    What an attempt reported beyond the step from which a later one started is superseded: kept, and not
    part of the line. The segments do not overlap.
    """
    line: list[Segment] = []
    through: int | None = None
    for attempt, from_step in sorted(attempts, reverse=True):
        if through is None or from_step < through:
            line.append(Segment(attempt, from_step or -1, through))
            through = from_step
    return line[::-1]


def on_line(line: Iterable[Segment], attempt: int, step: int) -> bool:
    """Whether `step` of `attempt` counts."""
    return any(
        s.attempt == attempt and s.after < step and (s.through is None or step <= s.through) for s in line
    )
