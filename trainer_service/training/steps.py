"""The rules of grpo's steps, beside those of `step_rules.py`: what a rollout and its scores add to them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from plaudit.types import metrics as names
from plaudit.types.scoring import Failed
from trainer_service.training.config import TrainingPlan
from trainer_service.training.metrics import PolicyStatistics, rollout_metrics
from trainer_service.training.reporting import RunReporter
from trainer_service.training.samples import ScoredRollout
from trainer_service.training.step_rules import CommonStepRules, SkipCause, StepRecord

_MESSAGE_LENGTH = 300
"""Characters of a server's message that are shown."""


class StepLedger(StepRecord):
    """What is known of the step under way; the trainer writes it, the rules read it."""

    def __init__(self, clip_epsilon: float) -> None:
        self._clip_epsilon = clip_epsilon
        self.rollout: ScoredRollout | None = None
        self.peer_metrics: Mapping[str, float] = {}
        """Of the reward servers, while the rollout was scored."""
        super().__init__()

    def begin(self) -> None:
        """Opens a new step; the rollout stays, as several steps may use it."""
        super().begin()
        self.statistics = PolicyStatistics(self._clip_epsilon)
        self.rollout_seconds = 0.0
        self.score_wait_seconds = 0.0

    def take_rollout(self, rollout: ScoredRollout) -> None:
        """Notes what was sampled and scored in this step."""
        self.rollout = rollout
        self.rollout_seconds = rollout.rollout_seconds
        self.score_wait_seconds = rollout.score_wait_seconds

    def skip_cause(self) -> SkipCause | None:
        """Why the optimizer must not act on the gradients at hand; None: it may."""
        rollout_finite = self.rollout is None or self.rollout.finite
        if not (rollout_finite and self.statistics.is_finite and math.isfinite(self.grad_norm)):
            return SkipCause.NOT_FINITE
        return None if self.statistics.taught_tokens else SkipCause.NOTHING_SCORED


class PauseAdvice(Protocol):
    """Who may say that the job should pause: the scorer, when a server's budget is spent."""

    def pause_reason(self) -> str | None:
        """Why, for people; None: no reason."""


class StepRules(CommonStepRules):
    """The rules of grpo's steps."""

    def __init__(
        self,
        *,
        ledger: StepLedger,
        plan: TrainingPlan,
        reward_names: tuple[str, ...],
        max_unscored_fraction: float,
        artifact_root: Path,
        reporter: RunReporter,
        advice: PauseAdvice,
    ) -> None:
        super().__init__(record=ledger, plan=plan, artifact_root=artifact_root, reporter=reporter)
        self._ledger = ledger
        self._reward_names = reward_names
        self._max_unscored_fraction = max_unscored_fraction
        self._advice = advice

    def method_metrics(self, seconds: float) -> Mapping[str, float]:
        ledger, rollout = self._ledger, self._ledger.rollout
        assert rollout is not None, "a step ended without a rollout"
        return {
            **rollout_metrics(rollout, self._reward_names),
            **ledger.peer_metrics,
            **ledger.statistics.metrics(),
            names.ROLLOUT_SECONDS: ledger.rollout_seconds,
            names.SCORE_WAIT_SECONDS: ledger.score_wait_seconds,
            names.TRAIN_SECONDS: seconds - ledger.rollout_seconds - ledger.score_wait_seconds,
            names.TOKENS_PER_SECOND: rollout.token_count / seconds,
        }

    def method_reason_to_pause(self) -> str | None:
        if (reason := self._advice.pause_reason()) is not None:
            return reason
        rollout = self._ledger.rollout
        if (
            rollout is not None
            and rollout.finite
            and rollout.rewards.failed_B.mean() > self._max_unscored_fraction
        ):
            return (
                f"{int(rollout.rewards.failed_B.sum())} of the {len(rollout.samples_B)} completions of step "
                f"{rollout.step} could not be scored, more than max_unscored_fraction "
                f"({self._max_unscored_fraction}) allows: {describe_failures(rollout)}"
            )
        return None


def describe_failures(rollout: ScoredRollout) -> str:
    """The most frequent failures of a rollout, for people."""
    causes = Counter(
        f"{name}: {scored.outcome.code} ({scored.outcome.message[:_MESSAGE_LENGTH]})"
        for scores in rollout.scores_B
        if scores is not None
        for name, scored in scores.outcomes.items()
        if isinstance(scored.outcome, Failed)
    )
    return "; ".join(f"{count} times {cause}" for cause, count in causes.most_common(3))
