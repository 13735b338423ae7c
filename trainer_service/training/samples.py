"""A rollout as data: the sampled completions, what they scored, and what they teach."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from plaudit.scoring import CompletionScores
from plaudit.scoring.combine import RewardStatus, weighted_sum
from plaudit.types.scoring import Completion, Failed, NotApplicable, Scored
from plaudit.types.texts import one_line
from trainer_service.training.advantages import Advantages, Flags, Floats
from trainer_service.training.prompts import PreparedPrompt

_MESSAGE_LENGTH = 300
"""Characters of a server's message that are shown."""


@dataclass(frozen=True, slots=True)
class Sample:
    """A completion and the prompt that it answers; `group_id` names all completions of that prompt."""

    group_id: str
    prompt: PreparedPrompt
    completion: Completion


@dataclass(frozen=True, slots=True)
class RewardTable:
    """Rewards of B completions by F reward functions, in the job's order.

    `rewards_BF` is NaN where a reward does not apply, and in the whole row of a completion that could not be
    scored: a reward that is broken must not shift what the others teach. `sums_B` is the weighted sum, NaN
    for those rows. `not_applicable_B` marks completions to which no reward applied, `failed_B` the others
    without a sum. `taught_names` are the rewards that are not held out: the others count for nothing here.
    """

    rewards_BF: Floats
    sums_B: Floats
    failed_B: Flags
    not_applicable_B: Flags
    taught_names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ScoredRollout:
    """Everything about the completions that were sampled for `step`, the first of the steps that use them.

    Where the policy's logits were not finite, `finite` is False, and all of `scores_B` None: the steps that
    would use the completions are skipped.
    """

    step: int
    samples_B: Sequence[Sample]
    scores_B: Sequence[CompletionScores | None]
    rewards: RewardTable
    advantages: Advantages
    rollout_seconds: float
    score_wait_seconds: float
    finite: bool

    @property
    def token_count(self) -> int:
        """Tokens of all completions."""
        return sum(sample.completion.token_count for sample in self.samples_B)


def partly_applicable(rollout: ScoredRollout) -> set[str]:
    """Rewards that apply to a part of some group only, whose other members they then do not compare with."""
    kinds: dict[tuple[str, str], set[bool]] = {}
    for sample, scores in zip(rollout.samples_B, rollout.scores_B, strict=True):
        if scores is None:
            continue
        for name in rollout.rewards.taught_names:
            applies = not isinstance(scores.outcomes[name].outcome, NotApplicable)
            kinds.setdefault((name, sample.group_id), set()).add(applies)
    return {name for (name, _), seen in kinds.items() if len(seen) == 2}


def describe_failed(scores_B: Sequence[CompletionScores | None], reward_names: Collection[str]) -> str:
    """The most frequent failures of these rewards, for people; "" where there is none."""
    causes = Counter(
        f"{name}: {scored.outcome.code} ({one_line(scored.outcome.message, _MESSAGE_LENGTH)})"
        for scores in scores_B
        if scores is not None
        for name, scored in scores.outcomes.items()
        if isinstance(scored.outcome, Failed) and name in reward_names
    )
    return "; ".join(f"{count} times {cause}" for cause, count in causes.most_common(3))


def describe_held_out_failed(
    scores_B: Sequence[CompletionScores | None], taught_names: Collection[str]
) -> str:
    """How often rewards that are held out failed, and the most frequent causes, for people; "" where none
    did.
    """
    failed_B = [
        {name for name, scored in scores.outcomes.items() if isinstance(scored.outcome, Failed)}
        for scores in scores_B
        if scores is not None
    ]
    held_out = {name for failed in failed_B for name in failed} - set(taught_names)
    count = sum(bool(failed & held_out) for failed in failed_B)
    if not count:
        return ""
    return (
        f"on {count} of {len(scores_B)} completions a reward that is held out (weight 0) failed, which "
        f"changes nothing of what is learnt: {describe_failed(scores_B, held_out)}"
    )


def tabulate(scores_B: Sequence[CompletionScores | None], weights: Mapping[str, float]) -> RewardTable:
    """Sums outcomes up; `weights` names the rewards in the job's order. None counts as failed."""
    rewards_BF = np.full((len(scores_B), len(weights)), np.nan)
    sums_B = np.full(len(scores_B), np.nan)
    failed_B = np.zeros(len(scores_B), dtype=np.bool_)
    not_applicable_B = np.zeros(len(scores_B), dtype=np.bool_)
    for b, scores in enumerate(scores_B):
        if scores is None:
            failed_B[b] = True
            continue
        combined = weighted_sum(scores.outcomes, weights)
        failed_B[b] = combined.status is RewardStatus.FAILED
        not_applicable_B[b] = combined.status is RewardStatus.NOT_APPLICABLE
        if combined.value is not None:
            outcomes = [scores.outcomes[name].outcome for name in weights]
            rewards_BF[b] = [outcome.value if isinstance(outcome, Scored) else np.nan for outcome in outcomes]
            sums_B[b] = combined.value
    taught_names = tuple(name for name, weight in weights.items() if weight != 0.0)
    return RewardTable(rewards_BF, sums_B, failed_B, not_applicable_B, taught_names)
