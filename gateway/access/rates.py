"""How often somebody may call."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

_MOST_KEYS: Final = 10_000
_ROUNDING: Final = 1e-6
"""Seconds that sums of intervals may be off."""


class RateLimit:
    """At most `per_second` calls in the long run and `burst` at once, for each key of its own.

    Keeps one number a key (GCRA): when the key's calls so far would be over, had they come evenly. Of more
    than 10,000 keys the ones that were quiet for longest are forgotten.
    """

    def __init__(self, per_second: float, burst: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._interval = 1.0 / per_second
        self._tolerance = self._interval * burst
        self._clock = clock
        self._over_at: OrderedDict[str, float] = OrderedDict()

    def take(self, key: str, *, times: float = 1.0) -> float:
        """Counts a call of `key`, which may call `times` as often. Returns 0.0, or the seconds to wait where
        it comes too early and does not count.
        """
        now = self._clock()
        over_at = max(self._over_at.get(key, now), now) + self._interval / times
        too_early = over_at - now - self._tolerance
        if too_early > _ROUNDING:
            return too_early
        self._over_at[key] = over_at
        self._over_at.move_to_end(key)
        if len(self._over_at) > _MOST_KEYS:
            self._over_at.popitem(last=False)
        return 0.0
