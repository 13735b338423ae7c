"""A rescore as the gateway knows it: plain data, no wire, no store."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from gateway.jobs.completions import RewardOutcome, ScoredCompletion
from gateway.jobs.job import JobError
from plaudit.types.rescores import RescoreSpec, RescoreStatus


@dataclass(frozen=True, slots=True)
class RescoredReward:
    """What one reward made of the completions. `mean` is None where it scored none; `failure` is why the
    newest failure failed, "" where none did.
    """

    name: str
    scored_count: int
    not_applicable_count: int
    failed_count: int
    mean: float | None
    failure: str


@dataclass(frozen=True, slots=True)
class RescoreSummary:
    """Old and new weighted sums in comparison, over the `compared_count` completions that have both.

    `correlation` is Pearson's, None where one side is constant. `rank_agreement` is the share of the
    `ordered_pair_count` pairs within a group, ordered by old or new, that both order alike.
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
    """A rescore. Every time is UTC; counts are of completions."""

    id: str
    job_id: str
    spec: RescoreSpec
    status: RescoreStatus
    total_count: int
    summary: RescoreSummary
    created_at: datetime
    status_detail: str = ""
    error: JobError | None = None
    done_count: int = 0
    started_at: datetime | None = None
    finished_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class RescoreResult:
    """A completion with the scores that it had, and those that it has now.

    `new_reward` is the weighted sum, None where it could not be scored.
    """

    completion: ScoredCompletion
    new_reward: float | None
    new_outcomes: tuple[RewardOutcome, ...]
