"""Waiting times between tries."""

from __future__ import annotations

import random
from typing import Final

RECONNECT_FIRST_SECONDS: Final = 0.2
RECONNECT_MOST_SECONDS: Final = 5.0
RETRY_FIRST_SECONDS: Final = 0.5
RETRY_MOST_SECONDS: Final = 15.0


def jittered_delay(tries: int, first: float, most: float) -> float:
    """Seconds to wait after `tries` tries (1 or more): doubling from `first` to `most`, less up to a half.

    The jitter keeps the clients of a server that went down from coming back in step.
    """
    return min(most, first * 2.0 ** min(tries - 1, 30)) * random.uniform(0.5, 1.0)


def retry_delay(attempts: int, asked_for: float | None) -> float:
    """Seconds until a completion that failed `attempts` times is sent again, at least what was asked for."""
    own = jittered_delay(attempts, RETRY_FIRST_SECONDS, RETRY_MOST_SECONDS)
    return own if asked_for is None else asked_for + min(own, 0.25 * asked_for + 0.01)
