"""Which replicas of a server fail so much more than the others that they are set aside; pure.

A broken replica that answers at once always has the least to do, and would draw nearly all work. What a
completion brings about by itself fails on every replica alike, and sets none aside. The scheme is that of
Envoy's outlier detection, compared with the best replica: of three, two may be broken.
https://www.envoyproxy.io/docs/envoy/latest/intro/arch_overview/upstream/outlier
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

TRIAL_ANSWERS: Final = 8
"""What a replica that was set aside is tried with."""

BREAK_WEIGHT: Final = 4
"""Failed answers that a stream which broke with work open counts for: one break may be the network's."""

FIRST_SECONDS: Final = 5.0
MOST_SECONDS: Final = 300.0
"""How long a replica is set aside: twice as long each time, from the first to the most."""

_FORGIVEN_AFTER_SECONDS: Final = 600.0
"""Back for so long, it starts from the first again."""

_LEAST_ANSWERS: Final = 8
"""Of each of the two that are compared."""
_KEPT_ANSWERS: Final = 256
"""Of a replica, or so: what is older counts less and less."""
_IN_A_ROW: Final = 16
"""Failures without a success between them, from which on nothing before them counts: a replica that hangs or
breaks after a long good time is known at once.
"""
_WELL_ABOVE: Final = 0.3
"""Difference of two shares of failures."""
_STANDARD_ERRORS: Final = 4.0
"""Of the difference, so that chance sets nobody aside."""
_ALIKE: Final = 0.15
"""Where the others come to fail nearly as much, the fault is not the replica's."""


class SetAside(NamedTuple):
    """A replica that gets no work while there are others."""

    place: str
    failed_share: float
    """Of its last answers, 0 to 1."""
    seconds_left: float
    """Until it is tried again; 0 where that waits for work, or is under way."""


@dataclass(slots=True)
class _Record:
    good: float = 0.0
    bad: float = 0.0
    bad_in_a_row: float = 0.0
    is_aside: bool = False
    until: float = -math.inf
    """Set aside until then at least."""
    seconds: float = 0.0
    """How long it was set aside last."""
    back_at: float = -math.inf
    trial_answers: int = 0
    """Of the trial under way; 0 where there is none."""
    trial_good: int = 0
    trial_bad: int = 0

    @property
    def answers(self) -> float:
        return self.good + self.bad

    @property
    def share(self) -> float:
        return self.bad / self.answers if self.answers else 0.0


class Outliers:
    """The record of each replica of one server. Times are in seconds, on any clock that does not go back."""

    def __init__(self, places: Iterable[str]) -> None:
        self._records = {place: _Record() for place in places}

    def record(self, place: str, good: int, bad: int, now: float) -> bool:
        """Takes in answers of a replica; True where they have it set aside, for the first time or again."""
        one = self._records[place]
        one.good += good
        one.bad += bad
        one.bad_in_a_row = 0.0 if good else one.bad_in_a_row + bad
        if one.bad_in_a_row >= _IN_A_ROW:
            one.good, one.bad = 0.0, one.bad_in_a_row
        if one.answers > _KEPT_ANSWERS:
            keep = _KEPT_ANSWERS / 2 / one.answers
            one.good *= keep
            one.bad *= keep
        if one.trial_answers:
            return self._judge_trial(place, good, bad, now)
        if bad and not one.is_aside and self._is_outlier(place):
            self._set_aside(one, now)
            return True
        # What others answered may have shown that the fault lies elsewhere.
        for other, its in self._records.items():
            if its.is_aside and not its.trial_answers and its.share - self._best_share(other) < _ALIKE:
                self._take_back(its, now)
                its.seconds = 0.0
        return False

    def is_aside(self, place: str) -> bool:
        """Whether the replica gets no work but a trial."""
        return self._records[place].is_aside

    def is_due(self, place: str, now: float) -> bool:
        """Whether a replica that was set aside is to be tried; also where a trial came to nothing."""
        one = self._records[place]
        return one.is_aside and now >= one.until

    def begin_trial(self, place: str, answers: int) -> None:
        """So many answers are asked of a replica that is due; they decide."""
        one = self._records[place]
        one.trial_answers, one.trial_good, one.trial_bad = answers, 0, 0

    def told(self, now: float) -> Iterator[SetAside]:
        """Those that are set aside."""
        for place, one in self._records.items():
            if one.is_aside:
                yield SetAside(place, one.share, max(0.0, one.until - now))

    def _judge_trial(self, place: str, good: int, bad: int, now: float) -> bool:
        one = self._records[place]
        one.trial_good += good
        one.trial_bad += bad
        if one.trial_bad / one.trial_answers - self._best_share(place) >= _WELL_ABOVE:
            self._set_aside(one, now)
            return True
        if one.trial_good + one.trial_bad >= one.trial_answers:
            self._take_back(one, now)
            one.good, one.bad = float(one.trial_good), float(one.trial_bad)
        return False

    def _is_outlier(self, place: str) -> bool:
        one = self._records[place]
        best = self._best(place)
        if best is None or one.answers < _LEAST_ANSWERS:
            return False
        difference = one.share - best.share
        pooled = (one.bad + best.bad) / (one.answers + best.answers)
        error = math.sqrt(pooled * (1.0 - pooled) * (1.0 / one.answers + 1.0 / best.answers))
        return difference >= max(_WELL_ABOVE, _STANDARD_ERRORS * error)

    def _best(self, place: str) -> _Record | None:
        """Of the others, the one that fails least, of those that have answered enough."""
        others = (
            its for other, its in self._records.items() if other != place and its.answers >= _LEAST_ANSWERS
        )
        return min(others, key=lambda its: its.share, default=None)

    def _best_share(self, place: str) -> float:
        best = self._best(place)
        return 0.0 if best is None else best.share

    def _set_aside(self, one: _Record, now: float) -> None:
        is_again = one.is_aside or now - one.back_at < _FORGIVEN_AFTER_SECONDS
        one.seconds = min(MOST_SECONDS, 2.0 * one.seconds) if is_again and one.seconds else FIRST_SECONDS
        one.is_aside = True
        one.until = now + one.seconds
        one.trial_answers = 0
        if all(its.is_aside for its in self._records.values()):
            self._take_back(min(self._records.values(), key=lambda its: its.share), now)

    def _take_back(self, one: _Record, now: float) -> None:
        one.is_aside = False
        one.back_at = now
        one.trial_answers = 0
