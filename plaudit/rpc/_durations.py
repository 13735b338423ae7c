"""Lengths of time as a peer sent them: any number may stand in the message, whatever protobuf allows."""

from __future__ import annotations

from typing import Final

from google.protobuf.duration_pb2 import Duration

LONGEST_DURATION_SECONDS: Final = 315_576_000_000
"""About 10,000 years: the upper end of google.protobuf.Duration."""

_NANOSECONDS: Final = 1_000_000_000


def is_duration(told: Duration) -> bool:
    """Whether it is a length of time: not negative, and in the range of google.protobuf.Duration."""
    return 0 <= told.seconds <= LONGEST_DURATION_SECONDS and 0 <= told.nanos < _NANOSECONDS


def duration_seconds(told: Duration) -> float:
    """Its length in seconds, 0 to LONGEST_DURATION_SECONDS: what lies beyond is cut off. Never raises."""
    # ToTimedelta raises OverflowError where the range is left.
    return min(max(0.0, told.seconds + told.nanos / _NANOSECONDS), float(LONGEST_DURATION_SECONDS))
