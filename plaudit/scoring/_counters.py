"""Counts of what reward servers and networks did wrong, by cause and by reward."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

CAUSES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "late": "results that came too late",
        "unknown": "results or dones for what was not asked",
        "doubled": "results that came twice",
        "differing": "repeated results with another value",
        "missing": "results that never came",
        "miscounted": "dones whose counts do not add up",
        "unfinished": "batches whose done never came",
        "non_finite": "values that are no numbers",
        "out_of_range": "values outside the reward's range",
        "empty": "results without an outcome, or plain_scores that are not as many as their ids",
        "mistimed": "lengths of time that are none",
        "reopened": "sessions that were opened a second time on one stream",
        "unreadable": "frames that could not be read",
        "rejected": "batches that were refused",
        "breaks": "connections that ended with work open",
        "resends": "batches that were sent again after a break",
        "retries": "completions that were sent again after a failure",
        "set_aside": "times that a replica which failed much more than the others was set aside",
    }
)
"""What each cause is, for people; it stands after a number."""

PROTOCOL_ERRORS: Final = tuple(CAUSES)[: tuple(CAUSES).index("rejected")]
"""Causes for which a server is to blame; the others happen to servers that keep to the contract, too."""


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
    unfinished: int = 0
    """Batches that had all their results, and whose done had not come when they were given up."""
    non_finite: int = 0
    """Scores that were NaN or infinite."""
    out_of_range: int = 0
    """Scores outside the reward's own range, or beyond ±1e6."""
    empty: int = 0
    """Results without an outcome."""
    mistimed: int = 0
    """Retry delays, graces and retentions outside the range of google.protobuf.Duration; taken as its end."""
    reopened: int = 0
    """`opened` frames that came after the first one of a stream, and were left out."""
    unreadable: int = 0
    """Frames that were too large, or no message of the contract; each ended its stream."""
    rejected: int = 0
    """Batches that a server refused."""
    breaks: int = 0
    """Streams that ended with work open."""
    resends: int = 0
    """Batches that were sent again after a break."""
    retries: int = 0
    """Completions (or groups, where a reward sees them whole) that were sent again after a failure."""
    set_aside: int = 0
    """Times that a replica which failed much more than the others was set aside, or failed its trial."""

    @property
    def protocol_errors(self) -> int:
        """Of all causes for which a server is to blame."""
        return sum(getattr(self, cause) for cause in PROTOCOL_ERRORS)

    def copy(self) -> ProtocolCounters:
        """A snapshot."""
        return dataclasses.replace(self)

    def since(self, before: ProtocolCounters) -> dict[str, int]:
        """By cause, what came on top; causes without any are left out."""
        grown = {cause: getattr(self, cause) - getattr(before, cause) for cause in CAUSES}
        return {cause: count for cause, count in grown.items() if count}

    @classmethod
    def total(cls, counters: Iterable[ProtocolCounters]) -> ProtocolCounters:
        """The sum, name by name."""
        total = cls()
        for one in counters:
            for field in dataclasses.fields(cls):
                setattr(total, field.name, getattr(total, field.name) + getattr(one, field.name))
        return total


class CounterBook:
    """The counters of one server."""

    def __init__(self, keys: Iterable[str]) -> None:
        """`keys` of its rewards."""
        self.server = ProtocolCounters()
        """What cannot be laid to one reward."""
        self._by_key = {key: ProtocolCounters() for key in keys}

    def at(self, key: str) -> ProtocolCounters:
        """The counters of a reward; those of the server where it is none of its rewards."""
        return self._by_key.get(key, self.server)

    def total(self) -> ProtocolCounters:
        """Of the server and all its rewards."""
        return ProtocolCounters.total([self.server, *self._by_key.values()])

    def by_reward(self) -> dict[str, ProtocolCounters]:
        """Of each reward, with what cannot be laid to one."""
        return {
            key: ProtocolCounters.total([self.server, counters]) for key, counters in self._by_key.items()
        }
