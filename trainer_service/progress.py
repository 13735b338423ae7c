"""Whether a run's steps go on as they did."""

from __future__ import annotations

import statistics
from collections import deque
from datetime import UTC, datetime, timedelta
from typing import Final

_LEAST_SECONDS: Final = 20.0
_STEP_TIMES: Final = 10.0
_STEPS_REMEMBERED: Final = 32


class Progress:
    """Notes when each step was done, and says where the next one is late.

    Late is later than 10 times the median step and than 20 seconds: a process that is stopped or hangs tells
    nothing of it itself.
    """

    def __init__(self) -> None:
        self._step = 0
        self._done_at: float | None = None
        self._step_seconds: deque[float] = deque(maxlen=_STEPS_REMEMBERED)

    def note(self, step: int, now: float) -> None:
        """Notes the newest step that is done; `now` is in seconds on a clock that never jumps."""
        if step <= self._step:
            return
        if self._done_at is not None:
            self._step_seconds.append((now - self._done_at) / (step - self._step))
        self._step, self._done_at = step, now

    def trouble(self, now: float) -> str:
        """Since when there was no step, for people; empty where the next one is not late."""
        if self._done_at is None or not self._step_seconds:
            return ""
        usual_seconds = statistics.median(self._step_seconds)
        waited_seconds = now - self._done_at
        if waited_seconds <= max(_LEAST_SECONDS, _STEP_TIMES * usual_seconds):
            return ""
        since = datetime.now(UTC) - timedelta(seconds=waited_seconds)
        return (
            f"no step since {since:%H:%M:%S} UTC ({waited_seconds:.0f} s; a step took {usual_seconds:.2g} "
            "s): the run's process is stopped, hangs, or has no processor"
        )
