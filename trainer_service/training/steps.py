"""The rules of an optimizer step: when it is skipped, what is told of it, when the run is saved or paused."""

from __future__ import annotations

import math
import shutil
import time
from collections import Counter
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from plaudit.types import metrics as names
from plaudit.types.scoring import Failed
from plaudit.types.statuses import RunState
from trainer_service.journal import StepCompleted
from trainer_service.training.config import TrainingPlan
from trainer_service.training.metrics import PolicyStatistics, rollout_metrics
from trainer_service.training.reporting import RunReporter
from trainer_service.training.samples import ScoredRollout

NON_FINITE_STEPS_TO_PAUSE = 3
"""Steps in a row that were skipped because something was not finite, after which the job pauses."""

LEAST_FREE_BYTES = 2_000_000_000
"""Free space under the artifact root below which the job saves and pauses, while there is room to save."""

_MESSAGE_LENGTH = 300
"""Characters of a server's message that are shown."""


class SkipCause(StrEnum):
    """Why a step left weights and optimizer as they were."""

    NOTHING_SCORED = "no completion was left to learn from"
    NOT_FINITE = "the loss, the gradient or the rollout's logits were not finite"


class StepLedger:
    """What is known of the step under way; the trainer writes it, the rules read it."""

    def __init__(self, clip_epsilon: float) -> None:
        self._clip_epsilon = clip_epsilon
        self.rollout: ScoredRollout | None = None
        self.begin()

    def begin(self) -> None:
        """Opens a new step; the rollout stays, as several steps may use it."""
        self.statistics = PolicyStatistics(self._clip_epsilon)
        self.grad_norm = math.nan
        self.rollout_seconds = 0.0
        self.score_wait_seconds = 0.0
        self.began = time.perf_counter()

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


class StepRules(TrainerCallback):
    """Acts on each step at the moments at which transformers' training loop calls it."""

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
        self._ledger = ledger
        self._plan = plan
        self._reward_names = reward_names
        self._max_unscored_fraction = max_unscored_fraction
        self._artifact_root = artifact_root
        self._reporter = reporter
        self._advice = advice
        self._learning_rate = math.nan
        self._skip: SkipCause | None = None
        self._non_finite_in_a_row = 0
        self.pause_reason: str | None = None
        """Why the run is to pause, or has paused; None: it goes on."""

    def on_step_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: object
    ) -> None:
        self._reporter.check()
        self._ledger.begin()

    def on_substep_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: object
    ) -> None:
        self._reporter.check()

    def on_pre_optimizer_step(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        **kwargs: Any,
    ) -> None:
        model, optimizer = kwargs["model"], kwargs["optimizer"]
        self._learning_rate = optimizer.param_groups[0]["lr"]
        self._skip = self._ledger.skip_cause()
        if self._skip is not None:
            # Without gradients AdamW touches neither weights nor moments, nor decays anything.
            for parameter in model.parameters():
                parameter.grad = None

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: object
    ) -> None:
        step = state.global_step
        self._reporter.append(StepCompleted(step, self._plan.total_steps, self._metrics()))
        self._note_skip(step)
        self._note_pause(step)
        is_last = step >= self._plan.total_steps
        if is_last or (self.pause_reason is not None and self._plan.is_boundary(step)):
            control.should_save = True
            control.should_training_stop = True
        elif step % self._plan.checkpoint_steps == 0:
            control.should_save = True

    def _metrics(self) -> dict[str, float]:
        ledger, rollout = self._ledger, self._ledger.rollout
        assert rollout is not None, "a step ended without a rollout"
        seconds = time.perf_counter() - ledger.began
        return {
            **rollout_metrics(rollout, self._reward_names),
            **ledger.statistics.metrics(),
            names.LEARNING_RATE: self._learning_rate,
            names.GRAD_NORM: ledger.grad_norm,
            names.STEP_SKIPPED: float(self._skip is not None),
            names.STEP_SECONDS: seconds,
            names.ROLLOUT_SECONDS: ledger.rollout_seconds,
            names.SCORE_WAIT_SECONDS: ledger.score_wait_seconds,
            names.TRAIN_SECONDS: seconds - ledger.rollout_seconds - ledger.score_wait_seconds,
            names.TOKENS_PER_SECOND: rollout.token_count / seconds,
        }

    def _note_skip(self, step: int) -> None:
        if self._skip is not None:
            self._reporter.log("warning", f"step {step} was skipped: {self._skip}", step=step)
        self._non_finite_in_a_row = self._non_finite_in_a_row + 1 if self._skip is SkipCause.NOT_FINITE else 0

    def _note_pause(self, step: int) -> None:
        if self.pause_reason is not None:
            return
        self.pause_reason = self._reason_to_pause(step)
        if self.pause_reason is not None:
            self._reporter.enter(RunState.PAUSING, self.pause_reason)

    def _reason_to_pause(self, step: int) -> str | None:
        if self._reporter.pause_requested:
            return "asked to pause"
        if self._non_finite_in_a_row >= NON_FINITE_STEPS_TO_PAUSE:
            return (
                f"{self._non_finite_in_a_row} steps in a row were skipped, the last of them step {step}: "
                f"{SkipCause.NOT_FINITE}; a lower learning_rate or dtype float32 may help"
            )
        if (reason := self._advice.pause_reason()) is not None:
            return reason
        if (free := shutil.disk_usage(self._artifact_root).free) < LEAST_FREE_BYTES:
            return (
                f"only {free / 1e9:.1f} GB are free under {self._artifact_root}, less than "
                f"{LEAST_FREE_BYTES / 1e9:g} GB; free some space, then resume the job"
            )
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
