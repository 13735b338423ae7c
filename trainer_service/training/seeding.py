"""Which prompts a step takes: a pure function of the seed, so that a resumed run goes on where it stopped."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count, islice

import torch
from torch.utils.data import Sampler

from trainer_service.training.config import TrainingPlan


def pass_order(seed: int, number: int, row_count: int) -> list[int]:
    """Order of the rows in pass `number` over the dataset, counted from 0."""
    generator = torch.Generator().manual_seed(seed + number)
    return torch.randperm(row_count, generator=generator).tolist()


def rows_in_passes(seed: int, row_count: int) -> Iterator[int]:
    """Rows in the order in which a run takes them: pass after pass over the dataset, without an end."""
    for number in count():
        yield from pass_order(seed, number, row_count)


class RunSampler(Sampler[int]):
    """Yields row indices for the whole run, in the layout that TRL's data loader slices.

    The passes over the dataset follow one another without a gap: a step that a pass cannot fill goes on with
    the next one, so that no row is ever left out. Every prompt comes `group_size` times in a row, and every
    batch of prompts once for each micro-batch that is made of it, as TRL's RepeatSampler has it.
    """

    def __init__(self, plan: TrainingPlan, seed: int) -> None:
        self._plan = plan
        self._seed = seed

    def __len__(self) -> int:
        plan = self._plan
        return plan.rollout_count * plan.prompts_per_step * plan.group_size * plan.micro_steps_per_rollout

    def __iter__(self) -> Iterator[int]:
        plan = self._plan
        rows = rows_in_passes(self._seed, plan.row_count)
        for _ in range(plan.rollout_count):
            batch = list(islice(rows, plan.prompts_per_step))
            repeated = [row for row in batch for _ in range(plan.group_size)]
            for _ in range(plan.micro_steps_per_rollout):
                yield from repeated
