"""Which failures are worth another try, and when it is made."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final

from plaudit.scoring._backoff import RETRY_FIRST_SECONDS, RETRY_MOST_SECONDS, backoff, jitter
from plaudit.scoring._work import Unit
from plaudit.types.scoring import Failed, FailureCode

_TIMEOUT_RETRIES: Final = 1
"""The server may have been busy; a completion that times out twice is a hard one."""

_GRID_SECONDS: Final = 0.05
"""Retries come due on this grid, so that what fails within moments travels together again."""

_SPREAD: Final = 0.25
"""How much later than asked for a retry may come, as a share of the delay."""

# CANCELLED is here because nothing that we cancelled gets this far: the server gave up by itself.
_FINAL: Final = frozenset({FailureCode.INVALID, FailureCode.EXHAUSTED})
"""Whatever delay a server names with these."""

_TRANSIENT: Final = frozenset({FailureCode.UNAVAILABLE, FailureCode.TIMEOUT, FailureCode.CANCELLED})

OWN_FAILURES: Final = _TRANSIENT | {FailureCode.INTERNAL}
"""Those that may be the fault of the replica, and not of what it was sent."""


def may_help(failure: Failed, *, elsewhere: bool = False) -> bool:
    """Whether another try can mend a failure of this kind; `elsewhere`: by another replica."""
    if failure.code in _FINAL:
        return False
    is_own = elsewhere and failure.code in OWN_FAILURES
    return is_own or failure.code in _TRANSIENT or failure.retry_delay is not None


class Retries:
    """Units that wait for their next try."""

    def __init__(self, push: Callable[[list[Unit]], None]) -> None:
        """`push` gets the units whose time has come."""
        self._push = push
        self._waiting: list[tuple[float, int, Unit]] = []
        self._order = itertools.count()
        self._jitter = 1.0
        self._jitter_drawn_at = -math.inf
        self._timer: asyncio.TimerHandle | None = None

    def __iter__(self) -> Iterator[Unit]:
        return (unit for _, _, unit in self._waiting)

    def delay(self, unit: Unit, failure: Failed, now: float) -> float | None:
        """Seconds until another try of a unit with this failure; None where there is to be none."""
        if unit.attempts + 1 >= unit.kind.patience.max_attempts:
            return None
        if failure.code is FailureCode.TIMEOUT and unit.timeouts >= _TIMEOUT_RETRIES:
            return None
        if now != self._jitter_drawn_at:
            # One draw for all that fails together, so that it travels together again.
            self._jitter_drawn_at, self._jitter = now, jitter()
        delay = self._jitter * backoff(unit.attempts + 1, RETRY_FIRST_SECONDS, RETRY_MOST_SECONDS)
        if failure.retry_delay is not None:
            delay = failure.retry_delay + min(delay, _SPREAD * failure.retry_delay)
        return delay if now + delay < unit.first_sent_at + unit.kind.patience.retry_seconds else None

    def put(self, unit: Unit, due_at: float) -> None:
        """Keeps a unit until `due_at`, event loop time."""
        on_grid = math.ceil(due_at / _GRID_SECONDS) * _GRID_SECONDS
        heapq.heappush(self._waiting, (on_grid, next(self._order), unit))
        self._arm()

    def remove_where(self, condition: Callable[[Unit], bool]) -> list[Unit]:
        """Takes out the units that meet the condition."""
        removed = [unit for _, _, unit in self._waiting if condition(unit)]
        if removed:
            self._waiting = [entry for entry in self._waiting if not condition(entry[2])]
            heapq.heapify(self._waiting)
            self._arm()
        return removed

    def close(self) -> None:
        """Lets go of the timer."""
        self._waiting.clear()
        self._arm()

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._waiting:
            self._timer = asyncio.get_running_loop().call_at(self._waiting[0][0], self._release)

    def _release(self) -> None:
        now = asyncio.get_running_loop().time() + 0.001
        due: list[Unit] = []
        while self._waiting and self._waiting[0][0] <= now:
            due.append(heapq.heappop(self._waiting)[2])
        self._arm()
        self._push(due)


def final(failure: Failed, attempts: int) -> Failed:
    """A failure as it is recorded when it is not tried again."""
    tries = f" (sent {attempts} times)" if attempts > 1 else ""
    return replace(failure, message=failure.message + tries, retry_delay=None)
