"""Leaves an endpoint alone for a while that fails again and again, or that refuses us."""

from __future__ import annotations

import time
from dataclasses import dataclass

from plaudit.types.scoring import Failed, FailureCode
from reward_service.judge._provider import EndpointFaultError, FaultKind
from reward_service.judge.settings import JudgeProfile


@dataclass(frozen=True, slots=True)
class _Rest:
    until: float
    code: FailureCode
    reason: str


class Breaker:
    """Counts failures in a row. A call that goes well ends everything."""

    def __init__(self, profile: JudgeProfile) -> None:
        self._most = profile.breaker_failures
        self._seconds = profile.breaker_seconds
        self._failures = 0
        self._rest: _Rest | None = None

    @property
    def is_refusing(self) -> bool:
        """Whether the endpoint refused us, and was not asked since."""
        return self._rest is not None and self._rest.code is FailureCode.EXHAUSTED

    def why_not(self) -> Failed | None:
        """Why the endpoint is not to be called now; None where it is.

        After its rest it is tried again, and one more failure sends it back.
        """
        if self._rest is None:
            return None
        left = self._rest.until - time.monotonic()
        if left <= 0:
            self._rest = None
            return None
        is_down = self._rest.code is FailureCode.UNAVAILABLE
        return Failed(self._rest.code, self._rest.reason, left if is_down else None)

    def on_answer(self) -> None:
        """A call went well."""
        self._failures = 0
        self._rest = None

    def on_fault(self, fault: EndpointFaultError) -> None:
        """A call brought no answer. BUSY and REJECTED say that the endpoint is well."""
        now = time.monotonic()
        if fault.kind is FaultKind.REFUSED:
            self._rest = _Rest(now + self._seconds, FailureCode.EXHAUSTED, fault.message)
        elif fault.kind in (FaultKind.DOWN, FaultKind.UNREACHABLE):
            self._failures += 1
            if self._failures >= self._most:
                reason = f"{self._failures} calls failed in a row, the last with: {fault.message}"
                self._rest = _Rest(now + self._seconds, FailureCode.UNAVAILABLE, reason)
