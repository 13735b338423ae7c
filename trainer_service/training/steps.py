"""The rules of grpo's steps, beside those of `step_rules.py`: what a rollout and its scores add to them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Protocol

from transformers import PreTrainedModel, TrainerControl, TrainerState, TrainingArguments

from plaudit.types import metrics as names
from plaudit.types.scoring import NotApplicable
from plaudit.types.texts import one_line
from trainer_service.training.config import TrainingPlan
from trainer_service.training.metrics import PolicyStatistics, rollout_metrics
from trainer_service.training.reporting import RunReporter
from trainer_service.training.samples import ScoredRollout, describe_failed
from trainer_service.training.step_rules import CommonStepRules, SkipCause, StepRecord

UNSCORED_ROLLOUTS_TO_PAUSE: Final = 3
"""Rollouts in a row of which nothing was scored, where no reward applied, after which the job pauses."""

_LARGE_KL_COEF: Final = 1.0
"""From which on the divergence rules the loss; usual are 0.001 to 0.1."""

_MESSAGE_LENGTH: Final = 300
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
        if self.is_repeated:
            return SkipCause.REPEATED
        rollout_finite = self.rollout is None or self.rollout.finite
        if not (rollout_finite and self.statistics.is_finite and math.isfinite(self.grad_norm)):
            return SkipCause.NOT_FINITE
        return None if self.statistics.taught_tokens else SkipCause.NOTHING_SCORED


class PauseAdvice(Protocol):
    """Who may say that the job should pause: the scorer, when a server's budget is spent."""

    def pause_reason(self) -> str | None:
        """Why, for people; None: no reason."""


class EvaluationSchedule(Protocol):
    """When the policy is evaluated (`evaluations.py`)."""

    def before_training(self, step: int, model: PreTrainedModel) -> None:
        """Takes the evaluation that is due after `step`, where training begins, if one is."""

    def after_step(self, step: int, model: PreTrainedModel, *, pauses: bool) -> None:
        """Takes the evaluation that is due after `step`, if one is and the run does not pause there."""


class StepRules(CommonStepRules):
    """The rules of grpo's steps."""

    def __init__(
        self,
        *,
        ledger: StepLedger,
        plan: TrainingPlan,
        reward_names: tuple[str, ...],
        max_unscored_fraction: float,
        kl_coef: float,
        artifact_root: Path,
        reporter: RunReporter,
        advice: PauseAdvice,
        evaluations: EvaluationSchedule | None = None,
    ) -> None:
        super().__init__(record=ledger, plan=plan, artifact_root=artifact_root, reporter=reporter)
        self._ledger = ledger
        self._reward_names = reward_names
        self._max_unscored_fraction = max_unscored_fraction
        self._kl_coef = kl_coef
        self._advice = advice
        self._evaluations = evaluations
        self._unscored_steps: set[int] = set()
        """Of the newest rollouts, those in a row of which nothing was scored."""

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        super().on_train_begin(args, state, control, **kwargs)
        if self._evaluations is not None:
            self._evaluations.before_training(state.global_step, kwargs["model"])

    def after_step(self, step: int, model: PreTrainedModel) -> None:
        if self._evaluations is not None:
            self._evaluations.after_step(step, model, pauses=self.pause_reason is not None)

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

    def method_remedies(self) -> tuple[str, ...]:
        return (f"a lower kl_coef than {self._kl_coef:g}",) if self._kl_coef >= _LARGE_KL_COEF else ()

    def method_reason_to_pause(self) -> str | None:
        if (reason := self._advice.pause_reason()) is not None:
            return reason
        rollout = self._ledger.rollout
        if rollout is None or not rollout.finite:
            return None
        if self.must_be_repeated(rollout):
            return (
                f"{int(rollout.rewards.failed_B.sum())} of the {len(rollout.samples_B)} completions of step "
                f"{rollout.step} could not be scored, more than max_unscored_fraction "
                f"({self._max_unscored_fraction}) allows: {describe_failures(rollout)}"
            )
        return self._reason_without_scores(rollout)

    def must_be_repeated(self, rollout: ScoredRollout) -> bool:
        """Whether too little of a rollout was scored to learn from it: the run pauses, and who resumes it has
        its prompts answered and scored again.
        """
        return rollout.finite and bool(rollout.rewards.failed_B.mean() > self._max_unscored_fraction)

    def _reason_without_scores(self, rollout: ScoredRollout) -> str | None:
        rewards = rollout.rewards
        if not rewards.not_applicable_B.any() or not (rewards.failed_B | rewards.not_applicable_B).all():
            self._unscored_steps.clear()
            return None
        self._unscored_steps.add(rollout.step)
        if len(self._unscored_steps) < UNSCORED_ROLLOUTS_TO_PAUSE:
            return None
        unscored = "" if rewards.not_applicable_B.all() else ", and the others could not be scored"
        return (
            f"{UNSCORED_ROLLOUTS_TO_PAUSE} rollouts in a row taught nothing, the last of them that of step "
            f"{rollout.step}: no reward applied to {int(rewards.not_applicable_B.sum())} of its "
            f"{len(rollout.samples_B)} completions{unscored}; check the columns that the rewards read, or "
            f"take rows to which one applies{describe_reasons(rollout)}"
        )


def describe_failures(rollout: ScoredRollout) -> str:
    """The most frequent failures of a rollout, for people."""
    return describe_failed(rollout.scores_B, rollout.rewards.taught_names)


def describe_reasons(rollout: ScoredRollout) -> str:
    """The most frequent reasons for which rewards did not apply, for people; "" where servers gave none."""
    causes = Counter(
        f"{name} says: {one_line(outcome.reason, _MESSAGE_LENGTH)}"
        for scores in rollout.scores_B
        if scores is not None
        for name in rollout.rewards.taught_names
        if isinstance(outcome := scores.outcomes[name].outcome, NotApplicable) and outcome.reason
    )
    return "".join(f"; {cause}" for cause, _ in causes.most_common(3))
