"""The rules of an optimizer step that every method shares: when it is skipped, saved, or the last one."""

from __future__ import annotations

import math
import shutil
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from plaudit.types import metrics as names
from plaudit.types.statuses import RunState
from trainer_service.journal import StepCompleted
from trainer_service.training.config import TrainingPlan
from trainer_service.training.reporting import RunReporter

NON_FINITE_STEPS_TO_PAUSE = 3
"""Steps in a row that were skipped because something was not finite, after which the job pauses."""

LEAST_FREE_BYTES = 2_000_000_000
"""Free space under the artifact root below which the job saves and pauses, while there is room to save."""


class SkipCause(StrEnum):
    """Why a step left weights and optimizer as they were."""

    NOTHING_SCORED = "no completion was left to learn from"
    NOT_FINITE = "the loss, the gradient or a logit was not finite"
    REPEATED = "too many of its completions could not be scored; it is done again when the job is resumed"


class StepRecord(ABC):
    """What is known of the step under way; the trainer writes it, the rules read it."""

    def __init__(self) -> None:
        self.owes_evaluation = False
        """Whether the policy as it is now is to be evaluated, and was not yet."""
        self.begin()

    def begin(self) -> None:
        """Opens a new step."""
        self.is_repeated = False
        """Whether a later attempt does the step again, from the checkpoint before it: it moves nothing."""
        self.grad_norm = math.nan
        self.began = time.perf_counter()

    @abstractmethod
    def skip_cause(self) -> SkipCause | None:
        """Why the optimizer must not act on the gradients at hand; None: it may."""


class CommonStepRules(TrainerCallback, ABC):
    """Acts on each step at the moments at which transformers' training loop calls it."""

    def __init__(
        self, *, record: StepRecord, plan: TrainingPlan, artifact_root: Path, reporter: RunReporter
    ) -> None:
        self._record = record
        self._plan = plan
        self._artifact_root = artifact_root
        self._reporter = reporter
        self._learning_rate = math.nan
        self._skip: SkipCause | None = None
        self._non_finite_in_a_row = 0
        self.pause_reason: str | None = None
        """Why the run is to pause, or has paused; None: it goes on."""
        self.first_step = 0
        """The step that the run started from, which has its checkpoint already; 0: the starting model."""

    @property
    def leaves_its_last_step(self) -> bool:
        """Whether the newest step is left to a later attempt."""
        return self._record.is_repeated

    @abstractmethod
    def method_metrics(self, seconds: float) -> Mapping[str, float]:
        """What the method tells of a step that took `seconds`."""

    def after_step(self, step: int, model: Any) -> None:
        """What the method does between this step and its checkpoint. Nothing, unless it says otherwise."""

    def method_reason_to_pause(self) -> str | None:
        """Why the method pauses the job after this step; None: it does not."""
        return None

    def method_remedies(self) -> tuple[str, ...]:
        """What of the method's own settings may help where steps are not finite."""
        return ()

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        self.first_step = state.global_step

    def on_step_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: object
    ) -> None:
        self._reporter.check()
        self._record.begin()

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
        self._skip = self._record.skip_cause()
        if self._skip is not None:
            # Without gradients AdamW touches neither weights nor moments, nor decays anything.
            for parameter in model.parameters():
                parameter.grad = None

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        step = state.global_step
        self._reporter.append(StepCompleted(step, self._plan.total_steps, self._metrics()))
        self._note_skip(step)
        self._note_pause(step)
        self.after_step(step, kwargs["model"])
        self._note_pause(step)
        if self._record.is_repeated:
            # What it goes on from was saved before it.
            control.should_training_stop = True
            return
        is_last = step >= self._plan.total_steps
        if is_last or (self.pause_reason is not None and self._plan.is_boundary(step)):
            control.should_save = True
            control.should_training_stop = True
        elif step % self._plan.checkpoint_steps == 0:
            control.should_save = True

    def _metrics(self) -> dict[str, float]:
        seconds = time.perf_counter() - self._record.began
        return {
            **self.method_metrics(seconds),
            names.LEARNING_RATE: self._learning_rate,
            names.GRAD_NORM: self._record.grad_norm,
            names.STEP_SKIPPED: float(self._skip is not None),
            names.STEP_NOT_FINITE: float(self._skip is SkipCause.NOT_FINITE),
            names.STEP_SECONDS: seconds,
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
            remedies = ", ".join((*self.method_remedies(), "a lower learning_rate"))
            return (
                f"{self._non_finite_in_a_row} steps in a row were skipped, the last of them step {step}: "
                f"{SkipCause.NOT_FINITE}; {remedies} or dtype float32 may help"
            )
        if (free := shutil.disk_usage(self._artifact_root).free) < LEAST_FREE_BYTES:
            return (
                f"only {free / 1e9:.1f} GB are free under {self._artifact_root}, less than "
                f"{LEAST_FREE_BYTES / 1e9:g} GB; free some space, then resume the job"
            )
        return self.method_reason_to_pause()
