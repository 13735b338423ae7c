"""What the trainers of all methods do alike: note the gradient's norm, write checkpoints, train in float32.

`overrides.py` lists what this class replaces, and why.
"""

from __future__ import annotations

from pathlib import Path

import torch
from transformers import PreTrainedTokenizerBase, PrinterCallback, Trainer
from transformers.trainer import TRAINER_STATE_NAME

from trainer_service.training.checkpoints import CheckpointStore
from trainer_service.training.config import TrainingPlan
from trainer_service.training.step_rules import StepRecord


class RunTrainer(Trainer):
    """Stands before TRL's trainer of a method; its own class sets what is declared here."""

    _plan: TrainingPlan
    _record: StepRecord
    _checkpoints: CheckpointStore
    _tokenizer: PreTrainedTokenizerBase
    _saved_step: int | None = None
    """Of the newest checkpoint that the run has taken."""

    def _settle(self) -> None:
        """Finishes the construction, after TRL's constructor."""
        self.remove_callback(PrinterCallback)
        for parameter in self.accelerator.unwrap_model(self.model).parameters():
            if parameter.requires_grad:
                # TRL makes the adapters of a quantised base bfloat16, in which small steps are lost.
                parameter.data = parameter.data.float()

    def _get_grad_norm(self, model: torch.nn.Module, grad_norm: torch.Tensor | None = None) -> float:
        norm = float(super()._get_grad_norm(model, grad_norm=grad_norm))  # type: ignore[no-untyped-call]
        self._record.grad_norm = norm
        return norm

    def _save_checkpoint(self, model: torch.nn.Module, trial: object) -> None:
        step = self.state.global_step
        self._checkpoints.save(
            step,
            self._plan.prompts_consumed(step),
            self._write_checkpoint,
            owes_evaluation=self._record.owes_evaluation,
        )
        self._saved_step = step

    def _write_checkpoint(self, folder: Path) -> None:
        self.accelerator.unwrap_model(self.model).save_pretrained(folder)
        self._tokenizer.save_pretrained(folder)
        self._save_optimizer_and_scheduler(str(folder))
        self._save_rng_state(str(folder))
        self.state.save_to_json(str(folder / TRAINER_STATE_NAME))
