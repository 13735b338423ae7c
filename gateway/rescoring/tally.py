"""Running sums of a rescore, from which its summary is told at any time. Pure."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from typing import Final

from pydantic import BaseModel, Field

from gateway.rescoring.rescore import RescoredReward, RescoreResult, RescoreSummary

_NOT_APPLICABLE: Final = "not_applicable"


class _RewardTally(BaseModel):
    scored_count: int = 0
    not_applicable_count: int = 0
    failed_count: int = 0
    mean: float = 0.0
    failure: str = ""
    causes: dict[str, int] = Field(default_factory=dict)
    """Failures by their code."""


class Tally(BaseModel):
    """What was seen so far; JSON keeps it between two runs of the gateway.

    Means, squared deviations and their product are updated one by one (Welford), which loses no digits where
    all values are nearly the same.
    """

    compared_count: int = 0
    old_mean: float = 0.0
    new_mean: float = 0.0
    old_squares: float = 0.0
    new_squares: float = 0.0
    products: float = 0.0
    ordered_pair_count: int = 0
    agreeing_pair_count: int = 0
    failed_count: int = 0
    not_applicable_count: int = 0
    rewards: dict[str, _RewardTally] = Field(default_factory=dict)

    def add(self, results: Sequence[RescoreResult]) -> None:
        """Takes in completions; a group's come together."""
        for result in results:
            self._add_outcomes(result)
            if result.completion.reward is not None and result.new_reward is not None:
                self._compare(result.completion.reward, result.new_reward)
        by_group = itertools.groupby(results, key=lambda r: (r.completion.attempt, r.completion.group_id))
        for _, group in by_group:
            self._add_pairs(group)

    def nothing_scored(self, done_count: int) -> str:
        """Why none of `done_count` completions was scored, for people; "" where one was, or none failed."""
        if not self.failed_count or self.failed_count + self.not_applicable_count < done_count:
            return ""
        failing = ((name, tally) for name, tally in self.rewards.items() if tally.failed_count)
        causes = (
            f"reward {name}: "
            + ", ".join(f"{count} {code}" for code, count in sorted(tally.causes.items()))
            + f", the last with {tally.failure}"
            for name, tally in failing
        )
        return f"none of {done_count} completions was scored; {'; '.join(causes)}"

    def summary(self, names: Iterable[str]) -> RescoreSummary:
        """The summary so far; `names` are those of the rewards, in order."""
        compared = self.compared_count > 0
        spread = math.sqrt(self.old_squares) * math.sqrt(self.new_squares)
        pairs = self.ordered_pair_count
        tallies = {name: self.rewards.get(name, _RewardTally()) for name in names}
        return RescoreSummary(
            compared_count=self.compared_count,
            old_mean=self.old_mean if compared else None,
            new_mean=self.new_mean if compared else None,
            correlation=max(-1.0, min(1.0, self.products / spread)) if spread else None,
            rank_agreement=self.agreeing_pair_count / pairs if pairs else None,
            ordered_pair_count=pairs,
            failed_count=self.failed_count,
            not_applicable_count=self.not_applicable_count,
            rewards=tuple(
                RescoredReward(
                    name=name,
                    scored_count=tally.scored_count,
                    not_applicable_count=tally.not_applicable_count,
                    failed_count=tally.failed_count,
                    mean=tally.mean if tally.scored_count else None,
                    failure=tally.failure,
                )
                for name, tally in tallies.items()
            ),
        )

    def _add_outcomes(self, result: RescoreResult) -> None:
        for outcome in result.new_outcomes:
            tally = self.rewards.setdefault(outcome.name, _RewardTally())
            if outcome.value is not None:
                tally.scored_count += 1
                tally.mean += (outcome.value - tally.mean) / tally.scored_count
            elif outcome.status == _NOT_APPLICABLE:
                tally.not_applicable_count += 1
            else:
                tally.failed_count += 1
                tally.failure = f"{outcome.status}: {outcome.explanation}"
                tally.causes[outcome.status] = tally.causes.get(outcome.status, 0) + 1
        if result.new_reward is None:
            if all(outcome.status == _NOT_APPLICABLE for outcome in result.new_outcomes):
                self.not_applicable_count += 1
            else:
                self.failed_count += 1

    def _compare(self, old: float, new: float) -> None:
        self.compared_count += 1
        old_before, new_before = old - self.old_mean, new - self.new_mean
        self.old_mean += old_before / self.compared_count
        self.new_mean += new_before / self.compared_count
        self.old_squares += old_before * (old - self.old_mean)
        self.new_squares += new_before * (new - self.new_mean)
        self.products += old_before * (new - self.new_mean)

    def _add_pairs(self, group: Iterable[RescoreResult]) -> None:
        both = [
            (result.completion.reward, result.new_reward)
            for result in group
            if result.completion.reward is not None and result.new_reward is not None
        ]
        for (old, new), (other_old, other_new) in itertools.combinations(both, 2):
            by_old, by_new = _order(old, other_old), _order(new, other_new)
            if by_old or by_new:
                self.ordered_pair_count += 1
                self.agreeing_pair_count += by_old == by_new


def _order(one: float, other: float) -> int:
    return (one > other) - (one < other)
