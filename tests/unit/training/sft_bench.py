"""A run of sft on a model of a few thousand weights, with everything around it on real files."""

from __future__ import annotations

import os
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from training_bench import END, VOCABULARY, load_model, load_tokenizer

from plaudit.types.sft_hyperparameters import SftHyperparameters
from trainer_service.control import RunControl
from trainer_service.journal import JournalReader, JournalWriter, StepCompleted
from trainer_service.training.checkpoints import CheckpointStore
from trainer_service.training.config import plan_imitation
from trainer_service.training.reporting import RunReporter
from trainer_service.training.sft.examples import Example
from trainer_service.training.sft.rules import SftRecord, SftRules
from trainer_service.training.sft.trainer import SftRunTrainer, sft_config

SMALL = {"global_batch_size": 8, "learning_rate": 1e-2, "max_steps": 2, "checkpoint_every": 1000.0}


def make_examples(count: int, seed: int = 0) -> list[Example]:
    """Prompts of ragged lengths with answers of ragged lengths, which are learnt."""
    source = random.Random(seed)
    examples = []
    for row in range(count):
        prompt = [source.randint(2, VOCABULARY - 1) for _ in range(source.randint(2, 9))]
        answer = [source.randint(2, VOCABULARY - 1) for _ in range(source.randint(0, 7))]
        token_ids = [*prompt, *answer, END]
        trained = np.arange(len(token_ids)) >= len(prompt)
        examples.append(Example(row, np.array(token_ids, dtype=np.int32), trained))
    return examples


@dataclass
class SftBench:
    """A trainer, and what it left behind."""

    trainer: SftRunTrainer
    rules: SftRules
    record: SftRecord
    control: RunControl
    reporter: RunReporter
    run_dir: Path
    artifact_root: Path
    taken: list[list[int]]
    """Rows of each step, in the order in which the model read them."""

    def entries(self, kind: type) -> list[Any]:
        with JournalReader(self.run_dir) as reader:
            return [r.entry for r in reader.read_after(0, 10_000) if isinstance(r.entry, kind)]

    def steps(self) -> list[dict[str, float]]:
        return [entry.metrics for entry in self.entries(StepCompleted)]

    def parameters(self) -> dict[str, torch.Tensor]:
        return {name: p.detach().clone() for name, p in self.trainer.model.named_parameters()}


class SftBenchMaker:
    """Builds benches: hyperparameters by name, the rest by keyword."""

    def __init__(self, model_dir: Path, tmp_path: Path) -> None:
        self.model_dir = model_dir
        self.tmp_path = tmp_path
        self.journals: list[JournalWriter] = []

    def __call__(
        self,
        *,
        examples: list[Example] | None = None,
        micro_batch_size: int = 8,
        adapter=None,
        attempt: int = 1,
        model=None,
        **hyperparameters: Any,
    ) -> SftBench:
        h = SftHyperparameters(**{**SMALL, **hyperparameters})
        examples = examples or make_examples(16)
        run_dir = self.tmp_path / f"run-{len(self.journals)}"
        run_dir.mkdir()
        artifact_root = self.tmp_path / "artifacts"
        journal = JournalWriter(run_dir)
        self.journals.append(journal)
        control = RunControl(*os.pipe())
        reporter = RunReporter(journal, control)
        plan = plan_imitation(
            h,
            row_count=len(examples),
            micro_batch_size=min(h.micro_batch_size or micro_batch_size, h.global_batch_size),
        )
        record = SftRecord()
        rules = SftRules(record=record, plan=plan, artifact_root=self.tmp_path, reporter=reporter)
        taken: list[list[int]] = []
        trainer = Observed(
            taken=taken,
            model=model or load_model(self.model_dir),
            tokenizer=load_tokenizer(self.model_dir),
            adapter=adapter,
            hyperparameters=h,
            args=sft_config(h, plan, device=torch.device("cpu"), scratch=run_dir / "scratch"),
            plan=plan,
            examples=examples,
            record=record,
            rules=rules,
            checkpoints=CheckpointStore(
                artifact_root, job_id="job", attempt=attempt, keep=h.checkpoint_keep, announce=reporter.append
            ),
        )
        return SftBench(trainer, rules, record, control, reporter, run_dir, artifact_root, taken)


class Observed(SftRunTrainer):
    """Notes which rows the batches of each step are made of."""

    def __init__(self, *, taken: list[list[int]], **rest: Any) -> None:
        self._taken = taken
        super().__init__(**rest)
        self._by_tokens = {tuple(e.token_ids_T.tolist()): e.row_index for e in self._examples}

    def get_batch_samples(self, epoch_iterator, num_batches, device):
        batches, trained_tokens = super().get_batch_samples(epoch_iterator, num_batches, device)
        self._taken.append(
            [
                self._by_tokens[tuple(ids[mask.bool()].tolist())]
                for batch in batches
                for ids, mask in zip(batch["input_ids"], batch["attention_mask"], strict=True)
            ]
        )
        return batches, trained_tokens
