"""Times in the store: microseconds since 1970, so that they sort and compare as integers."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def now() -> datetime:
    """The present, in UTC."""
    return datetime.now(UTC)


def to_micros(time: datetime) -> int:
    """A UTC time as the store keeps it."""
    return (time - _EPOCH) // _MICROSECOND


def from_micros(micros: int) -> datetime:
    """A time that the store kept."""
    return _EPOCH + micros * _MICROSECOND


def optional_to_micros(time: datetime | None) -> int | None:
    """As `to_micros`; None stays None."""
    return None if time is None else to_micros(time)


def optional_from_micros(micros: int | None) -> datetime | None:
    """As `from_micros`; None stays None."""
    return None if micros is None else from_micros(micros)
