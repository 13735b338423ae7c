"""SFT by TRL, with our examples, order, steps and checkpoints.

`overrides.py` lists what this class replaces, and why.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from peft import PeftConfig
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from trl.trainer.sft_config import SFTConfig
from trl.trainer.sft_trainer import SFTTrainer

from plaudit.types.sft_hyperparameters import SftHyperparameters
from trainer_service.training.checkpoints import CheckpointStore
from trainer_service.training.config import TrainingPlan, optimizer_arguments
from trainer_service.training.overrides import completion_positions_only
from trainer_service.training.run_trainer import RunTrainer
from trainer_service.training.sft.batches import IGNORED, Batch, ExampleSampler, micro_batches
from trainer_service.training.sft.examples import Example
from trainer_service.training.sft.rules import SftRecord, SftRules


class SftRunTrainer(RunTrainer, SFTTrainer):
    """One run's training loop: `train()` returns at the last step or a pause, or raises RunCancelledError."""

    loss_is_scaled_for_ga = True  # type: ignore[assignment]  # TRL declares that it says nothing
    """Whatever the model takes, its loss is divided by the tokens of the whole step, and not once more."""

    def __init__(
        self,
        *,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        adapter: PeftConfig | None,
        hyperparameters: SftHyperparameters,
        args: SFTConfig,
        plan: TrainingPlan,
        examples: Sequence[Example],
        record: SftRecord,
        rules: SftRules,
        checkpoints: CheckpointStore,
    ) -> None:
        """`adapter`: None for full fine-tuning."""
        # Set before TRL's constructor, which may call methods that we override.
        self._seed = hyperparameters.seed
        self._plan = plan
        self._examples = examples
        self._record = self._sums = record
        self._checkpoints = checkpoints
        super().__init__(
            model=model,
            args=args,
            # TRL carries the numbers of the examples; what is in them stays with us.
            train_dataset=Dataset.from_dict({"example": range(len(examples))}),
            data_collator=_numbers,  # type: ignore[arg-type]  # batches are made for the whole step
            processing_class=tokenizer,
            peft_config=adapter,
            callbacks=[rules],
        )
        self._settle()

    def _get_train_sampler(self, train_dataset: Dataset | None = None) -> ExampleSampler:
        return ExampleSampler(self._plan, self._seed)

    def get_batch_samples(
        self, epoch_iterator: Iterator[list[int]], num_batches: int, device: torch.device
    ) -> tuple[list[Batch], torch.Tensor]:
        numbers = [number for _ in range(num_batches) for number in next(epoch_iterator)]
        examples = [self._examples[number] for number in numbers]
        trained_tokens = sum(example.trained_count for example in examples)
        batches = micro_batches(examples, self._plan.micro_batch_size, self._tokenizer.pad_token_id)
        return batches, torch.tensor(trained_tokens, device=device)

    def compute_loss(
        self,
        model: torch.nn.Module,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: torch.Tensor | int | None = None,
    ) -> torch.Tensor:
        tokens = int(inputs["attention_mask"].sum())
        trained_tokens = int((inputs["labels"] != IGNORED).sum())
        with completion_positions_only():
            loss: torch.Tensor = super().compute_loss(  # type: ignore[no-untyped-call]
                model, inputs, num_items_in_batch=num_items_in_batch
            )
        told = self._metrics["train"]
        right_tokens = round(told["mean_token_accuracy"][-1] * trained_tokens)
        # TRL empties its own metrics when it logs, which it does not do here.
        told.clear()
        self._sums.add(
            loss=float(loss.detach()), tokens=tokens, trained_tokens=trained_tokens, right_tokens=right_tokens
        )
        return loss


def sft_config(
    hyperparameters: SftHyperparameters, plan: TrainingPlan, *, device: torch.device, scratch: Path
) -> SFTConfig:
    """TRL's configuration of the run. `scratch` is a folder that TRL may create; nothing is written to it."""
    return SFTConfig(
        output_dir=str(scratch),
        **optimizer_arguments(hyperparameters, device),
        # Steps
        max_steps=plan.total_steps,
        per_device_train_batch_size=plan.micro_batch_size,
        gradient_accumulation_steps=plan.accumulation_steps,
        # Loss; that of the routers of a mixture of experts is none of the examples'
        loss_type="nll",
        router_aux_loss_coef=0.0,
        # The examples are rendered, cut and put together by us
        max_length=None,
        packing=False,
        dataset_kwargs={"skip_prepare_dataset": True},
    )


def _numbers(rows: Sequence[dict[str, int]]) -> list[int]:
    return [row["example"] for row in rows]
