"""What is known and told of a step of sft."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

from plaudit.types import metrics as names
from trainer_service.training.config import TrainingPlan
from trainer_service.training.reporting import RunReporter
from trainer_service.training.step_rules import CommonStepRules, SkipCause, StepRecord


class SftRecord(StepRecord):
    """Sums over the micro-batches of one step."""

    def begin(self) -> None:
        super().begin()
        self.loss = 0.0
        self.tokens = 0
        self.trained_tokens = 0
        self.right_tokens = 0

    def add(self, *, loss: float, tokens: int, trained_tokens: int, right_tokens: int) -> None:
        """Takes in a micro-batch: its share of the step's loss, all its tokens, those that are learnt, and
        those of them that the model found most probable.
        """
        self.loss += loss
        self.tokens += tokens
        self.trained_tokens += trained_tokens
        self.right_tokens += right_tokens

    def skip_cause(self) -> SkipCause | None:
        is_finite = math.isfinite(self.loss) and math.isfinite(self.grad_norm)
        return None if is_finite else SkipCause.NOT_FINITE


class SftRules(CommonStepRules):
    """The rules of sft's steps: those that all methods share."""

    def __init__(
        self, *, record: SftRecord, plan: TrainingPlan, artifact_root: Path, reporter: RunReporter
    ) -> None:
        super().__init__(record=record, plan=plan, artifact_root=artifact_root, reporter=reporter)
        self._sums = record

    def method_metrics(self, seconds: float) -> Mapping[str, float]:
        sums = self._sums
        return {
            names.LOSS: sums.loss,
            names.TOKEN_ACCURACY: sums.right_tokens / sums.trained_tokens,
            names.TRAINED_TOKENS: float(sums.trained_tokens),
            names.TOKENS_PER_SECOND: sums.tokens / seconds,
        }
