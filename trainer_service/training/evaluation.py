"""An evaluation as data: what the policy wrote for held-out prompts, what it scored, its metrics. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from plaudit.scoring import CompletionScores
from plaudit.types import metrics as names
from plaudit.types.scoring import Failed, FinishReason, Scored
from trainer_service.eval_rows import evaluated_rows
from trainer_service.training.metrics import mean_of, std_of
from trainer_service.training.samples import RewardTable, Sample

Row = TypeVar("Row")


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The policy after `step`, on held-out prompts: one completion for each.

    `scores_B` is None for a completion that was broken off, as its logits were not finite. A reward that was
    not asked has no outcome. `canary_pass_fractions` holds, by reward, the share of the canaries that it lets
    pass, and not the rewards of which that can not be told. `seconds` is all that it took.
    """

    step: int
    samples_B: Sequence[Sample]
    scores_B: Sequence[CompletionScores | None]
    rewards: RewardTable
    canary_pass_fractions: Mapping[str, float]
    seconds: float

    def metrics(self, reward_names: Iterable[str]) -> dict[str, float]:
        """Its metrics; NaN where there was nothing to take one of. What was not scored is in no mean."""
        sums = self.rewards.sums_B[~np.isnan(self.rewards.sums_B)]
        completions = [sample.completion for sample in self.samples_B]
        metrics = {
            names.EVAL_REWARD_MEAN: mean_of(sums),
            names.EVAL_REWARD_STD: std_of(sums),
            names.EVAL_UNSCORED_FRACTION: float(self.rewards.failed_B.mean()),
            names.EVAL_NOT_APPLICABLE_FRACTION: float(self.rewards.not_applicable_B.mean()),
            names.EVAL_RESPONSE_LENGTH_MEAN: float(np.mean([c.token_count for c in completions])),
            names.EVAL_TRUNCATED_FRACTION: float(
                np.mean([c.finish_reason is FinishReason.LENGTH for c in completions])
            ),
            names.EVAL_SECONDS: self.seconds,
        }
        for name in reward_names:
            outcomes = [
                scores.outcomes[name].outcome
                for scores in self.scores_B
                if scores is not None and name in scores.outcomes
            ]
            values = np.array([outcome.value for outcome in outcomes if isinstance(outcome, Scored)])
            failed = np.array([isinstance(outcome, Failed) for outcome in outcomes], dtype=np.float64)
            passed = self.canary_pass_fractions.get(name, np.nan)
            metrics[names.eval_reward_metric(name, "mean")] = mean_of(values)
            metrics[names.eval_reward_metric(name, "failed_fraction")] = mean_of(failed)
            metrics[names.eval_reward_metric(name, "canary_pass_fraction")] = passed
        return metrics


def spread(rows: Sequence[Row], most: int) -> list[Row]:
    """All rows, or `most` of them at equal distances, in their order: always the same."""
    return [rows[index] for index in evaluated_rows(len(rows), most)]
