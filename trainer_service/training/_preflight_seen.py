"""What a preflight saw of a run and of its rewards, as data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from plaudit.types.scoring import Outcome, Scored
from trainer_service.training.canaries import Standard


@dataclass(frozen=True, slots=True)
class RewardSeen:
    """What a preflight saw of one reward: outcomes of completions, and of texts whose worth is known.

    `low` and `high` are the values that its server promises, None where it promises none. `canaries` holds
    the outcomes of completions that are no answer, by their names. `seconds` are those after which each
    outcome came, from the sending of all. One that `is_held_out` is scored and shown, and never taught.
    """

    name: str
    low: float | None
    high: float | None
    samples: Sequence[Outcome]
    good: Sequence[Outcome]
    bad: Sequence[Outcome]
    canaries: Mapping[str, Sequence[Outcome]]
    examples_problem: str
    seconds: Sequence[float]
    is_held_out: bool = False

    @property
    def standard(self) -> Standard:
        """What its canaries are held against."""
        return Standard(self.low, self.high, values_of(self.good), self.values)

    @property
    def values(self) -> list[float]:
        """Scores of the base model's completions."""
        return values_of(self.samples)

    @property
    def is_constant(self) -> bool:
        """Whether every completion got the same score."""
        return bool(self.values) and len(set(self.values)) == 1

    @property
    def is_penalty(self) -> bool:
        """Whether its best value is to take nothing away."""
        return self.high is not None and self.high <= 0.0


@dataclass(frozen=True, slots=True)
class RunSeen:
    """What a preflight saw of a run. `sums_by_prompt`: the weighted sums of each prompt's completions."""

    rewards: Sequence[RewardSeen]
    completion_count: int
    truncated_count: int
    empty_count: int
    non_finite_count: int
    has_chat_template: bool
    rollout_seconds: float
    sums_by_prompt: Sequence[Sequence[float]]


def values_of(outcomes: Sequence[Outcome]) -> list[float]:
    """The values of those that were scored."""
    return [outcome.value for outcome in outcomes if isinstance(outcome, Scored)]


def mean_of(outcomes: Sequence[Outcome]) -> float | None:
    """The mean of those that were scored; None where there is none."""
    values = values_of(outcomes)
    return fmean(values) if values else None


def seconds_per_step(reward: RewardSeen, batch_size: int) -> float | None:
    """Estimated time to score `batch_size` completions: the first answer's, and the pace of the others.

    A server that works on all at once answers all of them together; one that takes them in turn goes on at
    the pace that was seen.
    """
    if not reward.seconds:
        return None
    first, last, count = min(reward.seconds), max(reward.seconds), len(reward.seconds)
    return first if count == 1 else first + (batch_size - 1) * (last - first) / (count - 1)
