"""From a run's `start.json` to its last state, for sft: data, model, training. It dials no reward server."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path

import torch
from transformers import PreTrainedModel

from plaudit.errors import InvalidArgumentError
from plaudit.types.sft_hyperparameters import SftHyperparameters
from trainer_service.journal import MemoryEstimated, RunStateChanged
from trainer_service.run_directory import RunStart
from trainer_service.training.checkpoints import open_checkpoint
from trainer_service.training.config import (
    TrainingPlan,
    compute_dtype,
    plan_imitation,
    uses_gradient_checkpointing,
)
from trainer_service.training.dataset import DatasetRow, read_rows
from trainer_service.training.memory import choose_rows_per_pass, weigh
from trainer_service.training.models import check_example_length, end_token_ids, lora_config
from trainer_service.training.reporting import RunReporter
from trainer_service.training.sft.examples import PreparedExamples, prepare_examples
from trainer_service.training.sft.rules import SftRecord, SftRules
from trainer_service.training.sft.trainer import SftRunTrainer, sft_config
from trainer_service.training.stages import (
    checkpoint_store,
    circumstances,
    device_name,
    enter_stage,
    train_to_the_end,
)
from trainer_service.training.starts import StartingPolicy, load_start, verify_inits

_ROWS_BETWEEN_LOOKS = 256
"""Rows that are rendered between two looks at whether the run is to stop."""


class SftSession:
    """One run of sft."""

    def __init__(self, start: RunStart, run_dir: Path, reporter: RunReporter) -> None:
        assert isinstance(start.spec.hyperparameters, SftHyperparameters)
        self._start = start
        self._h = start.spec.hyperparameters
        self._run_dir = run_dir
        self._reporter = reporter
        self._device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

    def run(self) -> RunStateChanged:
        """Trains, and returns the last entry of the journal. Raises as `session.train`."""
        start, reporter = self._start, self._reporter
        enter_stage(reporter, "loading the model")
        inits = verify_inits(start.artifact_root, start.spec.init_checkpoints)
        policy = load_start(start.spec.base_model, self._h, self._device, inits)
        rows = read_rows(start.artifact_root, start.spec.dataset)
        prepared = prepare_examples(
            self._watched(rows),
            policy.tokenizer,
            end_token_ids=end_token_ids(policy.model, policy.tokenizer),
            max_length=self._h.max_length,
        )
        plan = self._plan(policy.model, prepared)
        self._tell_plan(policy.model, plan, prepared)
        checkpoint = None
        if start.checkpoint_uri:
            enter_stage(reporter, "verifying the checkpoint")
            checkpoint = open_checkpoint(start.artifact_root, start.checkpoint_uri)
        enter_stage(reporter, "building the trainer")
        trainer, rules = self._trainer(policy, plan, prepared)
        enter_stage(reporter, "")
        return train_to_the_end(trainer, rules, plan, checkpoint, reporter)

    def _watched(self, rows: Iterable[DatasetRow]) -> Iterator[DatasetRow]:
        for number, row in enumerate(rows):
            if number % _ROWS_BETWEEN_LOOKS == 0:
                enter_stage(self._reporter, "preparing the examples")
            yield row

    def _plan(self, model: PreTrainedModel, prepared: PreparedExamples) -> TrainingPlan:
        longest = max(len(example.token_ids_T) for example in prepared.examples)
        check_example_length(model, longest)
        bytes_per_value = compute_dtype(self._h, self._device).itemsize
        gradient_checkpointing = uses_gradient_checkpointing(self._h, self._device)
        micro_batch_size = choose_rows_per_pass(
            self._h,
            model,
            longest_row=longest,
            bytes_per_value=bytes_per_value,
            gradient_checkpointing=gradient_checkpointing,
        )
        verdict = weigh(
            self._h,
            model,
            longest_prompt=longest,
            bytes_per_value=bytes_per_value,
            gradient_checkpointing=gradient_checkpointing,
            micro_batch_size=micro_batch_size,
        )
        self._reporter.append(MemoryEstimated(verdict.estimate))
        if verdict.warning:
            self._reporter.log("warning", verdict.warning)
        if verdict.obstacles:
            raise InvalidArgumentError(verdict.obstacles)
        return plan_imitation(self._h, row_count=len(prepared.examples), micro_batch_size=micro_batch_size)

    def _trainer(
        self, policy: StartingPolicy, plan: TrainingPlan, prepared: PreparedExamples
    ) -> tuple[SftRunTrainer, SftRules]:
        record = SftRecord()
        rules = SftRules(
            record=record, plan=plan, artifact_root=self._start.artifact_root, reporter=self._reporter
        )
        trainer = SftRunTrainer(
            model=policy.model,
            tokenizer=policy.tokenizer,
            adapter=None if self._h.lora_rank is None else lora_config(policy.model, self._h),
            hyperparameters=self._h,
            args=sft_config(self._h, plan, device=self._device, scratch=self._run_dir / "scratch"),
            plan=plan,
            examples=prepared.examples,
            record=record,
            rules=rules,
            checkpoints=checkpoint_store(self._start, self._reporter),
        )
        return trainer, rules

    def _tell_plan(self, model: PreTrainedModel, plan: TrainingPlan, prepared: PreparedExamples) -> None:
        """The run's record: what it will do, on what, by which versions, and what is left out."""
        examples = prepared.examples
        self._reporter.log(
            "info",
            f"{plan.total_steps} steps of {plan.global_batch_size} examples over {len(examples)}, "
            f"{plan.micro_batch_size} at once on {device_name(self._device)}",
            plan=asdict(plan),
            tokens=sum(len(example.token_ids_T) for example in examples),
            trained_tokens=sum(example.trained_count for example in examples),
            **circumstances(self._start, model, self._device),
        )
        if plan.borrowed_prompts:
            self._reporter.log(
                "info",
                f"the last step is filled with {plan.borrowed_prompts} examples that are seen once more, as "
                f"{plan.global_batch_size} examples a step do not divide the {len(examples)} there are",
            )
        rows = len(examples) + prepared.dropped_count
        if prepared.cut_count:
            self._reporter.log(
                "warning",
                f"{prepared.cut_count} of {rows} examples are longer than max_length ({self._h.max_length} "
                "tokens) and lost their end; what was cut is not learnt",
            )
        if prepared.dropped_count:
            self._reporter.log(
                "warning",
                f"{prepared.dropped_count} of {rows} rows are left out, as nothing to learn stands in their "
                f"first max_length ({self._h.max_length}) tokens",
            )
        if prepared.last_turn_count:
            self._reporter.log(
                "info",
                f"of {prepared.last_turn_count} conversations only the last answer is learnt, as the model's "
                "chat template shows earlier answers otherwise than they were written",
            )
