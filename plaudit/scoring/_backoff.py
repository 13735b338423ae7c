"""Waiting times between tries."""

from __future__ import annotations

import random
from typing import Final

RECONNECT_FIRST_SECONDS: Final = 0.2
RECONNECT_MOST_SECONDS: Final = 5.0
RETRY_FIRST_SECONDS: Final = 0.5
RETRY_MOST_SECONDS: Final = 15.0


def jitter() -> float:
    """A factor for a delay. It keeps the clients of a server that went down from coming back in step."""
    return random.uniform(0.5, 1.0)


def backoff(tries: int, first: float, most: float) -> float:
    """Seconds to wait after `tries` tries (1 or more): doubling from `first` to `most`; before the jitter."""
    return min(most, first * 2.0 ** min(tries - 1, 30))
