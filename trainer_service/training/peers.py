"""What reward servers do wrong is told where the run is watched, and counted by step."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Final, Protocol

from plaudit.scoring import CAUSES, PROTOCOL_ERRORS, ProtocolCounters
from plaudit.types.metrics import reward_metric
from trainer_service.training.reporting import RunReporter

TELL_AGAIN_SECONDS: Final = 60.0
"""After a line about a server, the next one about the same causes."""

NON_DETERMINISM: Final = "differing"


class PeerFacts(Protocol):
    """What is used of `plaudit.scoring.RewardScorer`."""

    def counters_by_server(self) -> Mapping[str, ProtocolCounters]:
        """What went wrong so far, by name of the reward server."""

    def counters_by_reward(self) -> Mapping[str, ProtocolCounters]:
        """The same by name of the reward."""

    def server_versions(self) -> Mapping[str, str]:
        """The version that each server last named."""


class PeerWatch:
    """Keeps an eye on the run's reward servers while it waits; also the `Watch` of the run's waits."""

    def __init__(
        self, facts: PeerFacts, reporter: RunReporter, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`clock` gives seconds."""
        self._facts = facts
        self._reporter = reporter
        self._clock = clock
        self._told: dict[str, ProtocolCounters] = {}
        self._told_at: dict[tuple[str, str], float] = {}
        self._versions: dict[str, str] = {}
        self._errors_before: dict[str, int] = {}

    @property
    def cancel_requested(self) -> bool:
        """Whether the run is to stop."""
        return self._reporter.cancel_requested

    def check(self) -> None:
        """Raises RunCancelledError where the run was cancelled."""
        self._reporter.check()

    def waiting_for(self, detail: str) -> None:
        """Tells what the run waits for, and what its servers did wrong meanwhile."""
        self._reporter.waiting_for(detail)
        self.look()

    def look(self, *, at_end: bool = False) -> None:
        """Tells what is new: a cause when it is first seen, then once in TELL_AGAIN_SECONDS, and `at_end`."""
        now = self._clock()
        for server, counters in self._facts.counters_by_server().items():
            grown = counters.since(self._told.get(server, ProtocolCounters()))
            if grown and (at_end or any(self._is_due(server, cause, now) for cause in grown)):
                self._told[server] = counters
                self._told_at |= {(server, cause): now for cause in grown}
                self._tell(server, grown)
        self._tell_versions()

    def step_metrics(self) -> dict[str, float]:
        """By reward, the protocol errors of its server since the last call."""
        metrics: dict[str, float] = {}
        for name, counters in self._facts.counters_by_reward().items():
            errors = counters.protocol_errors
            metrics[reward_metric(name, "protocol_errors")] = float(errors - self._errors_before.get(name, 0))
            self._errors_before[name] = errors
        return metrics

    def _is_due(self, server: str, cause: str, now: float) -> bool:
        told_at = self._told_at.get((server, cause))
        return told_at is None or now - told_at >= TELL_AGAIN_SECONDS

    def _tell(self, server: str, grown: Mapping[str, int]) -> None:
        causes = "; ".join(f"{count} {CAUSES[cause]}" for cause, count in grown.items())
        is_to_blame = any(cause in PROTOCOL_ERRORS for cause in grown)
        self._reporter.log(
            "warning",
            f"reward server {server} breaks its contract: {causes}; nothing of it was used. "
            "`plaudit reward conformance` says which rule"
            if is_to_blame
            else f"trouble with reward server {server}: {causes}",
            kind="protocol_errors" if is_to_blame else "reward_server_trouble",
            server=server,
            causes=dict(grown),
        )
        if NON_DETERMINISM in grown:
            self._reporter.log(
                "warning",
                f"reward server {server} is not deterministic: {grown[NON_DETERMINISM]} times it answered "
                "another value for the same completion; the first one counts. Mend the reward, or declare it "
                "as not deterministic",
                kind="non_determinism",
                server=server,
                count=grown[NON_DETERMINISM],
            )

    def _tell_versions(self) -> None:
        for name, now in self._facts.server_versions().items():
            before = self._versions.setdefault(name, now)
            if before != now:
                self._versions[name] = now
                self._reporter.log(
                    "warning", f"reward server {name} changed from version {before} to {now} in mid-run"
                )
