"""Trainers that a gateway gives jobs to."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class TrainerState(StrEnum):
    """What the gateway found when it last asked a trainer."""

    NOT_ASKED = "not_asked"
    """The gateway has just started."""
    ANSWERS = "answers"
    AWAY = "away"
    """It does not answer, or is refused."""


@dataclass(frozen=True, slots=True)
class Trainer:
    """A trainer of the gateway's settings.

    `problem` is why it is away, else "". `version` is "" and `max_concurrent_runs` 0 unless it answers.
    """

    address: str
    state: TrainerState
    problem: str
    version: str
    max_concurrent_runs: int
