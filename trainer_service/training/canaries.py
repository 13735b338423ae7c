"""Canaries: completions that are no answer, and what it means that a reward lets one of them pass. Pure.

Preflight and evaluations show them to every reward. docs/evaluation.md says what is made of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Final

from trainer_service.training.prompts import PreparedPrompt

TEXTS: Final = ("", ":", "Thought process:", "Solution")
"""Texts that say nothing, and that judges have been seen to like."""

ECHO: Final = "the prompt again"
"""Name of the canary that repeats what was asked."""

PROMPTS: Final = 2
"""Prompts that canaries answer: one alone may have, by chance, an answer that a canary hits."""


@dataclass(frozen=True, slots=True)
class Canary:
    """A completion that is no answer: `name` says which of them it is, and is its text but for the echo."""

    name: str
    text: str


def canaries_for(prompt: PreparedPrompt) -> tuple[Canary, ...]:
    """The canaries that answer this prompt: TEXTS, and what its last turn says."""
    return (*(Canary(text, text) for text in TEXTS), Canary(ECHO, prompt.messages[-1].content))


@dataclass(frozen=True, slots=True)
class Standard:
    """What a reward gives, against which its canaries are held.

    `low` and `high` are the values that its server promises, None where it promises none. `good` are its
    values for texts that it calls good itself, empty where it writes none; `samples` those for what the
    policy wrote.
    """

    low: float | None
    high: float | None
    good: Sequence[float]
    samples: Sequence[float]

    @property
    def is_penalty(self) -> bool:
        """Whether its best value is to take nothing away, which what says nothing may well get."""
        return self.high is not None and self.high <= 0.0

    def lets_pass(self, value: float) -> bool | None:
        """Whether a canary that got `value` is worth as much to the reward as work is; None: it can not be
        told.

        With texts that it calls good, where it got what these get on average. Without, where it got what the
        policy's completions get on average, and at least the middle of the promised range; where no range is
        promised, where it got more than each of them.
        """
        if self.good:
            return value >= fmean(self.good)
        if self.is_penalty or not self.samples:
            return None
        if self.low is not None and self.high is not None:
            return value >= max(fmean(self.samples), (self.low + self.high) / 2)
        return value > max(self.samples)


def pass_fraction(standard: Standard, values: Sequence[float]) -> float | None:
    """Share of the canaries with these values that pass; None where it can not be told."""
    passes = [passed for value in values if (passed := standard.lets_pass(value)) is not None]
    return fmean(passes) if passes else None
