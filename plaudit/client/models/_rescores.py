"""Stored completions, scored again."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from plaudit.client.models._events import RewardOutcome, ScoredCompletion
from plaudit.client.models._jobs import JobError
from plaudit.types.jobs import RewardBinding
from plaudit.types.rescores import RescoreStatus


@dataclass(frozen=True, slots=True)
class RescoredReward:
    """What one reward made of the completions; `mean` is None where it scored none."""

    name: str
    scored_count: int
    not_applicable_count: int
    failed_count: int
    mean: float | None
    failure: str


@dataclass(frozen=True, slots=True)
class RescoreSummary:
    """Old and new weighted sums in comparison, over the `compared_count` completions that have both.

    `correlation` is Pearson's; `rank_agreement` the share of the `ordered_pair_count` pairs within a group,
    ordered by old or new, that both order alike. None where it cannot be told.
    """

    compared_count: int
    old_mean: float | None
    new_mean: float | None
    correlation: float | None
    rank_agreement: float | None
    ordered_pair_count: int
    failed_count: int
    not_applicable_count: int
    rewards: tuple[RescoredReward, ...]


@dataclass(frozen=True, slots=True)
class Rescore:
    """A rescore as it stood when it was read; counts are of completions."""

    id: str
    job_id: str
    rewards: tuple[RewardBinding, ...]
    from_step: int
    to_step: int
    status: RescoreStatus
    status_detail: str
    error: JobError | None
    done_count: int
    total_count: int
    summary: RescoreSummary
    created_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None


@dataclass(frozen=True, slots=True)
class RescoreResult:
    """A completion with the scores that it had, and those that it has now.

    `new_reward` is None where it could not be scored.
    """

    completion: ScoredCompletion
    new_reward: float | None
    new_outcomes: tuple[RewardOutcome, ...]
