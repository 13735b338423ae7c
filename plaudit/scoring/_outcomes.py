"""What the scorer hands over."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from plaudit.types.scoring import Outcome


class ScoredOutcome(NamedTuple):
    """The accepted outcome of one reward for one completion."""

    outcome: Outcome
    latency_seconds: float
    """From the first sending to this outcome; from the submission where it was never sent."""
    scored_at: datetime
    """When the outcome was accepted, UTC."""


@dataclass(slots=True)
class CompletionScores:
    """All outcomes of one completion, by name of the reward, in the order of the job's rewards."""

    outcomes: dict[str, ScoredOutcome]
