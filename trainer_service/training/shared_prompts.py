"""Completions of the same prompt share one pass over it, with gradients.

A prompt's keys and values are taken once and stay in the graph: each of its completions attends to them, and
the gradients of all flow back through the one pass. A model's own cache would not do: it grows by what it is
given, and gradient checkpointing, which runs a layer twice, would give it everything twice.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache, PreTrainedConfig
from transformers.cache_utils import Cache, DynamicLayer, DynamicSlidingWindowLayer

_ATTENTION = (DynamicLayer, DynamicSlidingWindowLayer)
"""Layers whose state is keys and values of every token; windows are the mask's matter here."""


def distinct_prompts(prompt_ids: Tensor, prompt_mask: Tensor) -> tuple[Tensor, Tensor]:
    """Tells which of B padded prompts, [B, width] each, are the same.

    Returns the first row of each of P distinct prompts, int64 [P], and for every row which of them it has,
    int64 [B]. Prompts are numbered in the order in which they come.
    """
    numbers: dict[tuple[int, ...], int] = {}
    rows = prompt_ids.masked_fill(prompt_mask == 0, -1).tolist()
    prompt_B = [numbers.setdefault(tuple(row), len(numbers)) for row in rows]
    first_P = [prompt_B.index(number) for number in range(len(numbers))]
    device = prompt_ids.device
    return torch.tensor(first_P, device=device), torch.tensor(prompt_B, device=device)


def is_all_attention(config: PreTrainedConfig) -> bool:
    """Whether a model keeps keys and values and nothing else of what it has read, in every layer."""
    return all(type(layer) in _ATTENTION for layer in DynamicCache(config=config).layers)


class PromptStates:
    """Keys and values of P prompts in all layers: filled by one pass, then attended to by rows."""

    def __init__(self, config: PreTrainedConfig) -> None:
        self._layers = [
            _RecordingLayer()  # type: ignore[no-untyped-call]
            for _ in DynamicCache(config=config).layers
        ]

    def recorder(self) -> Cache:
        """The cache for the pass over the prompts."""
        return Cache(layers=[*self._layers])

    def reader(self, prompt_R: Tensor) -> Cache:
        """The cache for a pass of R rows, row i of which continues prompt `prompt_R[i]`.

        Raises ValueError where the pass over the prompts gave a layer nothing.
        """
        if any(layer.keys is None for layer in self._layers):
            raise ValueError("a layer was not given the cache")
        return Cache(layers=[_ReadingLayer(layer, prompt_R) for layer in self._layers])


class _RecordingLayer(DynamicLayer):  # type: ignore[no-untyped-call]
    """Notes keys and values, [P, heads, length, dim]; to the pass itself it is empty."""

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        self.keys, self.values = key_states, value_states
        return key_states, value_states

    def get_seq_length(self) -> int:
        return 0


class _ReadingLayer(DynamicLayer):
    """Puts the prompts of R rows before their own keys and values, and keeps nothing."""

    def __init__(self, prompts: _RecordingLayer, prompt_R: Tensor) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.keys, self.values = prompts.keys, prompts.values
        self._prompt_R = prompt_R

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        assert self.keys is not None and self.values is not None
        keys = torch.cat([self.keys.index_select(0, self._prompt_R), key_states], dim=-2)
        values = torch.cat([self.values.index_select(0, self._prompt_R), value_states], dim=-2)
        return keys, values

    def get_seq_length(self) -> int:
        assert self.keys is not None
        return int(self.keys.shape[-2])
