"""The key/value cache of a rollout: grows in place, and drops finished rows by moving a few.

transformers' own layers copy the whole cache for every token (`torch.cat`) and for every finished row
(`batch_select_indices`); for a small model that costs more than half as much as its matrix products.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import LongTensor, Tensor
from transformers import DynamicCache, PreTrainedConfig
from transformers.cache_utils import DynamicLayer

_SMALLEST_GROWTH = 64
"""Positions by which a buffer grows at least, so that short completions need one allocation."""


class RolloutCache(DynamicCache):
    """A DynamicCache that is filled by one prefill, then spread over the rows, then thinned out."""

    def __init__(self, config: PreTrainedConfig) -> None:
        super().__init__(config=config)
        # Layers of another kind (sliding windows, recurrent states) hold little, and stay as they are.
        self.layers = [_GrowingLayer() if type(layer) is DynamicLayer else layer for layer in self.layers]

    def spread(self, sources_B: Tensor, extra_length: int) -> None:
        """Makes row i a copy of the prefilled row `sources_B[i]`, with room for `extra_length` positions."""
        for layer in self.layers:
            if isinstance(layer, _GrowingLayer):
                layer.spread(sources_B, extra_length)
            else:
                layer.reorder_cache(cast(LongTensor, sources_B))

    def keep(self, order_R: Tensor) -> None:
        """Keeps as row i the row `order_R[i]`: i itself, or one beyond the last row that stays."""
        # Which rows move is the same for all layers: asked once, as it waits for the device.
        moved_M = (order_R != torch.arange(len(order_R), device=order_R.device)).nonzero().flatten()
        for layer in self.layers:
            if isinstance(layer, _GrowingLayer):
                layer.keep(len(order_R), moved_M, order_R[moved_M])
            else:
                layer.reorder_cache(cast(LongTensor, order_R))


def compacted_order(row_count: int, over: Sequence[int]) -> list[int]:
    """Places of the rows that stay when those at `over` go: the last fill the gaps."""
    gone = set(over)
    kept_count = row_count - len(gone)
    fillers = iter([place for place in range(kept_count, row_count) if place not in gone])
    return [next(fillers) if place in gone else place for place in range(kept_count)]


class _GrowingLayer(DynamicLayer):
    """Keys and values of one layer, [rows, heads, length, dim], as the front of larger buffers."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._buffers: tuple[Tensor, Tensor] | None = None

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Appends [rows, heads, new, dim]; returns everything that is held."""
        if self._buffers is None:
            return super().update(key_states, value_states, *args, **kwargs)
        keys, values = self._states()
        rows, length = keys.shape[0], keys.shape[2]
        new_length = length + key_states.shape[2]
        if new_length > self._buffers[0].shape[2]:
            capacity = new_length + max(_SMALLEST_GROWTH, length // 4)
            self._buffers = (_enlarged(keys, capacity), _enlarged(values, capacity))
        key_buffer, value_buffer = self._buffers
        key_buffer[:rows, :, length:new_length] = key_states
        value_buffer[:rows, :, length:new_length] = value_states
        self._view(rows, new_length)
        return self._states()

    def spread(self, sources_B: Tensor, extra_length: int) -> None:
        """As RolloutCache.spread."""
        keys, values = self._states()
        capacity = keys.shape[2] + min(extra_length, _SMALLEST_GROWTH)
        self._buffers = (_enlarged(keys[sources_B], capacity), _enlarged(values[sources_B], capacity))
        self._view(len(sources_B), keys.shape[2])

    def keep(self, row_count: int, moved_M: Tensor, sources_M: Tensor) -> None:
        """Copies rows `sources_M` over rows `moved_M`, then cuts to `row_count` rows."""
        keys, values = self._states()
        keys[moved_M] = keys[sources_M]
        values[moved_M] = values[sources_M]
        self._view(row_count, keys.shape[2])

    def _states(self) -> tuple[Tensor, Tensor]:
        assert self.keys is not None and self.values is not None
        return self.keys, self.values

    def _view(self, rows: int, length: int) -> None:
        assert self._buffers is not None
        key_buffer, value_buffer = self._buffers
        self.keys = key_buffer[:rows, :, :length]
        self.values = value_buffer[:rows, :, :length]


def _enlarged(states: Tensor, capacity: int) -> Tensor:
    buffer = states.new_empty((*states.shape[:2], capacity, states.shape[3]))
    buffer[:, :, : states.shape[2]] = states
    return buffer
