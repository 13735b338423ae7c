"""Which examples a step takes, and the tensors that the model reads them in."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TypeAlias

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import Sampler

from trainer_service.training.config import TrainingPlan
from trainer_service.training.seeding import rows_in_passes
from trainer_service.training.sft.examples import Example

Batch: TypeAlias = dict[str, Tensor]
"""`input_ids`, `attention_mask` and `labels`, each [B, T], padded on the right."""

IGNORED = -100
"""Label of a token that is not learnt."""


class ExampleSampler(Sampler[int]):
    """Yields numbers of examples for the whole run: one pass after another, in the order of `pass_order`."""

    def __init__(self, plan: TrainingPlan, seed: int) -> None:
        self._plan = plan
        self._seed = seed

    def __len__(self) -> int:
        return self._plan.total_steps * self._plan.global_batch_size

    def __iter__(self) -> Iterator[int]:
        return islice(rows_in_passes(self._seed, self._plan.row_count), len(self))


def collate(examples: Sequence[Example], pad_token_id: int) -> Batch:
    """The examples as one batch, as wide as the longest of them."""
    ids = [torch.from_numpy(example.token_ids_T).long() for example in examples]
    labels = [
        row.masked_fill(~torch.from_numpy(example.trained_T), IGNORED)
        for row, example in zip(ids, examples, strict=True)
    ]
    return {
        "input_ids": pad_sequence(ids, batch_first=True, padding_value=pad_token_id),
        "attention_mask": pad_sequence([torch.ones_like(row) for row in ids], batch_first=True),
        "labels": pad_sequence(labels, batch_first=True, padding_value=IGNORED),
    }


def micro_batches(examples: Sequence[Example], size: int, pad_token_id: int) -> list[Batch]:
    """The examples of a step in batches of `size`, a divisor of their number.

    Those of like length come together, so that little is padded; the longest come first, so that a lack of
    memory shows at once.
    """
    ordered = sorted(examples, key=lambda example: len(example.token_ids_T), reverse=True)
    return [collate(ordered[start : start + size], pad_token_id) for start in range(0, len(ordered), size)]
