"""Times as a peer sent them: any number may stand in the message, whatever protobuf allows."""

from __future__ import annotations

from datetime import UTC, datetime

from google.protobuf.timestamp_pb2 import Timestamp


def time_of(told: Timestamp) -> datetime | None:
    """The time in UTC; None where the message holds none: outside of the years 1 to 9999, or wrong nanos."""
    try:
        return told.ToDatetime(tzinfo=UTC)
    except (ValueError, OverflowError):
        return None
