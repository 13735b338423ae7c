"""Counts of what reward servers and networks did wrong."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable


@dataclasses.dataclass(slots=True)
class ProtocolCounters:
    """What went wrong with results and connections since the scorer was started."""

    late: int = 0
    """Results after the scorer had given up: past the deadline, or after the completion was taken."""
    unknown: int = 0
    """Results and dones with an id or a key that was not asked for."""
    doubled: int = 0
    """Results for what the same batch had answered; the first valid answer counts."""
    differing: int = 0
    """Repeated scores with another value, from one batch or from a reward that calls itself deterministic."""
    missing: int = 0
    """Results that had not come when their batch was done."""
    miscounted: int = 0
    """Dones whose counts do not add up to completions times rewards."""
    non_finite: int = 0
    """Scores that were NaN or infinite."""
    out_of_range: int = 0
    """Scores outside the reward's own range, or beyond ±1e6."""
    empty: int = 0
    """Results without an outcome."""
    rejected: int = 0
    """Batches that a server refused."""
    breaks: int = 0
    """Streams that ended with work open."""
    resends: int = 0
    """Batches that were sent again after a break."""
    retries: int = 0
    """Completions (or groups, where a reward sees them whole) that were sent again after a failure."""

    def copy(self) -> ProtocolCounters:
        """A snapshot."""
        return dataclasses.replace(self)

    @classmethod
    def total(cls, counters: Iterable[ProtocolCounters]) -> ProtocolCounters:
        """The sum, name by name."""
        total = cls()
        for one in counters:
            for field in dataclasses.fields(cls):
                setattr(total, field.name, getattr(total, field.name) + getattr(one, field.name))
        return total
