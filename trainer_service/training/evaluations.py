"""When a run is evaluated, and what becomes of it: before the first step, every so often, and at the end.

An evaluation stands between a step and its checkpoint. One that a pause breaks off is owed by the checkpoint,
and taken when the run goes on from there: none is lost, and none is taken twice.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from transformers import PreTrainedModel

from plaudit.errors import InvalidArgumentError, PlauditError
from plaudit.types.metrics import EVAL_REWARD_MEAN
from plaudit.types.validation import shown
from trainer_service.journal import CompletionsWritten, EvaluationFinished
from trainer_service.training.checkpoints import Checkpoint
from trainer_service.training.config import TrainingPlan
from trainer_service.training.dataset import DatasetError
from trainer_service.training.evaluation import Evaluation
from trainer_service.training.evaluator import Evaluator
from trainer_service.training.reporting import RunReporter
from trainer_service.training.samples import describe_failed, describe_held_out_failed
from trainer_service.training.stages import PauseBeforeTrainingError
from trainer_service.training.step_rules import StepRecord


def owed_after(checkpoint: Checkpoint | None) -> int | None:
    """The step after which a run that goes on from `checkpoint`, or starts, is evaluated before it trains;
    None: it was already.
    """
    if checkpoint is None:
        return 0
    return checkpoint.step if checkpoint.owes_evaluation else None


def of_held_out(error: PlauditError, dataset: str) -> PlauditError:
    """The error where what is wrong is the dataset of held-out prompts, which the job calls `dataset`."""
    way_out = (
        "shorten or leave out such rows of that dataset, name another, or leave "
        "hyperparameters.eval_dataset_id out"
    )
    whose = f"of the held-out prompts in {shown(dataset)}, not of what is trained on"
    if isinstance(error, InvalidArgumentError):
        said = "; ".join(f"{violation.field}: {violation.message}" for violation in error.violations)
        return InvalidArgumentError.of(
            "hyperparameters.eval_dataset_id",
            f"{whose}: {said}. That would change training as well; instead {way_out}",
        )
    return DatasetError(f"hyperparameters.eval_dataset_id: {whose}: {error.message}; or {way_out}")


class Evaluations:
    """The evaluations of a run, at the moments at which its rules call."""

    def __init__(
        self,
        evaluator: Evaluator,
        *,
        plan: TrainingPlan,
        record: StepRecord,
        reporter: RunReporter,
        reward_names: Sequence[str],
        keep: Callable[[Evaluation], CompletionsWritten] | None,
        owed_after: int | None,
    ) -> None:
        """`keep` writes the completions of an evaluation; None: none are kept. `owed_after` is the step after
        which the policy is to be evaluated before it is trained; None: it is not.
        """
        self._evaluator = evaluator
        self._plan = plan
        self._record = record
        self._reporter = reporter
        self._reward_names = reward_names
        self._keep = keep
        self._owed_after = owed_after

    def before_training(self, step: int, model: PreTrainedModel) -> None:
        """Takes the evaluation that is owed. Raises RunCancelledError, and PauseBeforeTrainingError where a
        pause breaks it off.
        """
        if self._owed_after == step and not self._take(step, model, yields_to_pause=True):
            raise PauseBeforeTrainingError

    def after_step(self, step: int, model: PreTrainedModel, *, pauses: bool) -> None:
        """Takes the evaluation that is due after `step`, if one is; where the run `pauses` here, or is asked
        to meanwhile, it is owed. The last one is taken in any case: nothing comes after it.

        Raises RunCancelledError.
        """
        self._record.owes_evaluation = self._plan.is_evaluated(step)
        is_last = step >= self._plan.total_steps
        if self._record.owes_evaluation and (is_last or not pauses):
            self._record.owes_evaluation = not self._take(step, model, yields_to_pause=not is_last)

    def _take(self, step: int, model: PreTrainedModel, *, yields_to_pause: bool) -> bool:
        reporter = self._reporter
        evaluation = self._evaluator.run(
            step,
            model,
            should_stop=lambda: reporter.cancel_requested or (yields_to_pause and reporter.pause_requested),
        )
        reporter.waiting_for("")
        reporter.check()
        if evaluation is None:
            return False
        self._tell(evaluation)
        return True

    def _tell(self, evaluation: Evaluation) -> None:
        step, count = evaluation.step, len(evaluation.samples_B)
        metrics = evaluation.metrics(self._reward_names)
        completions = None if self._keep is None else self._keep(evaluation)
        self._reporter.append(EvaluationFinished(step, metrics, completions))
        mean = metrics[EVAL_REWARD_MEAN]
        told = "none could be scored" if math.isnan(mean) else f"{EVAL_REWARD_MEAN} {mean:.4g}"
        self._reporter.log(
            "info",
            f"evaluation after step {step}: {count} held-out prompts in {evaluation.seconds:.1f} s, {told}",
            step=step,
        )
        unscored = int(evaluation.rewards.failed_B.sum())
        if unscored:
            causes = describe_failed(evaluation.scores_B, evaluation.rewards.taught_names)
            self._reporter.log(
                "warning",
                f"evaluation after step {step}: {unscored} of {count} completions could not be scored, and "
                f"are in no mean{f': {causes}' if causes else ''}",
                step=step,
            )
        if held_out := describe_held_out_failed(evaluation.scores_B, evaluation.rewards.taught_names):
            self._reporter.log("warning", f"evaluation after step {step}: {held_out}", step=step)
