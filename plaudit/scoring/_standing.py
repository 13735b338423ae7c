"""Where the work of a server may go: to replicas that are there and fail no more than the others."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from typing import Final

from plaudit.scoring._counters import ProtocolCounters
from plaudit.scoring._outliers import Outliers
from plaudit.scoring._replica import Replica
from plaudit.service import get_logger

log = get_logger(__name__)

_SOON_SECONDS: Final = 1.0


class Standing:
    """How the replicas of one server stand. Made and used in one event loop."""

    def __init__(
        self,
        server: str,
        addresses: Collection[str],
        replicas: Sequence[Replica],
        counters: ProtocolCounters,
    ) -> None:
        """`replicas` are filled in later. `counters` of the server count how often one is set aside."""
        self._server = server
        self._replicas = replicas
        self._counters = counters
        self._outliers = Outliers(addresses)
        self._loop = asyncio.get_running_loop()

    def note(self, place: str, good: int, bad: int) -> None:
        """The replica at `place` answered: `good` are outcomes, `bad` failures that are its own."""
        replica = next(r for r in self._replicas if r.address == place)
        # A server that goes away answers so, and is not broken.
        if not replica.is_draining and self._outliers.record(place, good, bad, self._loop.time()):
            self._counters.set_aside += 1
            log.warning(
                "replica set aside: it fails more than the others", server=self._server, address=place
            )

    def takers(self) -> list[Replica]:
        """Replicas to which work may go: those in good standing, where one of them is there, else all."""
        there = [replica for replica in self._replicas if replica.takes_work]
        return [replica for replica in there if not self._outliers.is_aside(replica.address)] or there

    def due(self) -> list[Replica]:
        """Replicas that were set aside and are to be tried with a little work now."""
        now = self._loop.time()
        return [
            replica
            for replica in self._replicas
            if self._outliers.is_due(replica.address, now) and replica.takes_work and not replica.in_flight
        ]

    def begin_trial(self, replica: Replica, answers: int) -> None:
        """A replica that is due gets work with so many answers."""
        self._outliers.begin_trial(replica.address, answers)

    def is_passed_over(self, replica: Replica) -> bool:
        """Whether a replica was set aside and another one takes its work."""
        return self._outliers.is_aside(replica.address) and self.has_other_than({replica.address})

    def has_other_than(self, places: Collection[str]) -> bool:
        """Whether work may go to a replica in good standing that is at none of these places."""
        return any(
            replica.takes_work
            and replica.address not in places
            and not self._outliers.is_aside(replica.address)
            for replica in self._replicas
        )

    def told(self) -> str:
        """Which replicas are set aside, for people; empty where none is."""
        return "; ".join(
            f"replica {aside.place} is set aside: {aside.failed_share:.0%} of its last answers failed; "
            + (
                f"it is tried again in {aside.seconds_left:.0f} s"
                if aside.seconds_left >= _SOON_SECONDS
                else "it is being tried again"
            )
            for aside in self._outliers.told(self._loop.time())
        )
