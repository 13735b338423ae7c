"""The weighted sum of a completion's rewards; pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from plaudit.scoring._outcomes import ScoredOutcome
from plaudit.types.scoring import Failed, Scored

MAX_ABSOLUTE_REWARD: Final = 1e6
"""A value or a weighted sum beyond this is a failure: it would drown what every other completion teaches."""


class RewardStatus(StrEnum):
    """What came of a completion as a whole."""

    SCORED = "scored"
    NOT_APPLICABLE = "not_applicable"
    """No reward applied: unscored, and counted apart."""
    FAILED = "failed"
    """At least one reward failed: unscored."""


@dataclass(frozen=True, slots=True)
class CombinedReward:
    """The reward of a completion. `value` is set exactly where `status` is SCORED."""

    status: RewardStatus
    value: float | None = None
    reason: str = ""
    """What failed and why, for people; empty where nothing did."""


def weighted_sum(outcomes: Mapping[str, ScoredOutcome], weights: Mapping[str, float]) -> CombinedReward:
    """Sums the values of the rewards in `weights`, each times its weight, in float64.

    A reward that does not apply is left out, and the weights of the others stay as they are. A failed one
    makes the completion unscored, so that a broken reward cannot shift what the others teach. One of weight 0
    is held out: whatever came of it changes nothing. `outcomes` must hold every other name in `weights`.
    """
    failures: list[str] = []
    terms: list[float] = []
    for name, weight in weights.items():
        if weight == 0.0:
            continue
        outcome = outcomes[name].outcome
        if isinstance(outcome, Failed):
            failures.append(f"{name}: {outcome.code}: {outcome.message}")
        elif isinstance(outcome, Scored):
            # Written so that NaN fails too.
            if abs(outcome.value) <= MAX_ABSOLUTE_REWARD:
                terms.append(weight * outcome.value)
            else:
                failures.append(f"{name}: {outcome.value} is not a number within ±{MAX_ABSOLUTE_REWARD:g}")
    if failures:
        return CombinedReward(RewardStatus.FAILED, reason="; ".join(failures))
    if not terms:
        return CombinedReward(RewardStatus.NOT_APPLICABLE)
    # Exact, so that equal rewards give equal sums on every Python and in every order.
    value = math.fsum(terms)
    if abs(value) > MAX_ABSOLUTE_REWARD:
        return CombinedReward(
            RewardStatus.FAILED,
            reason=f"the weighted sum, {value}, is beyond ±{MAX_ABSOLUTE_REWARD:g}; use smaller weights",
        )
    return CombinedReward(RewardStatus.SCORED, value)
