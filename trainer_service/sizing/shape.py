"""What of a model decides how much memory its training takes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

_PROJECTIONS: Final = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
"""What adapters go on."""

_NOT_PACKED: Final = ("emb", "wte", "wpe", "lm_head")
"""In the names of matrices that stay in full precision where the linear maps are packed into 4 bits."""

_NAMES: Final[Mapping[str, tuple[str, ...]]] = {
    "hidden_size": ("hidden_size", "n_embd", "d_model"),
    "layers": ("num_hidden_layers", "n_layer", "num_layers"),
    "intermediate_size": ("intermediate_size", "n_inner", "ffn_dim"),
    "heads": ("num_attention_heads", "n_head", "num_heads"),
    "key_value_heads": ("num_key_value_heads",),
    "head_dim": ("head_dim",),
    "vocabulary": ("vocab_size",),
}
"""Names that configurations of different architectures have for the same."""


@dataclass(frozen=True, slots=True)
class ModelShape:
    """Counts of a causal language model.

    `parameters` counts every weight once, `packed_parameters` those of its linear maps, which load_in_4bit
    packs, and `adapter_width` is the sum of inputs and outputs of what adapters go on: adapters of rank r
    have r times as many weights.
    """

    parameters: int
    packed_parameters: int
    adapter_width: int
    hidden_size: int
    intermediate_size: int
    layers: int
    key_value_width: int
    vocabulary: int


def shape_of(config: Mapping[str, Any], tensors: Iterable[tuple[str, Sequence[int]]]) -> ModelShape:
    """Counts of the model with this configuration (as in config.json) and these weights, by name and shape.

    Raises ValueError where the configuration lacks what is counted, as for another kind of model.
    """
    text: Mapping[str, Any] = config.get("text_config") or config
    hidden, layers = _number(text, "hidden_size"), _number(text, "layers")
    # A model without attention has no heads, and keeps about as much.
    heads = _optional(text, "heads") or 1
    key_value_heads = _optional(text, "key_value_heads") or heads
    head_dim = _optional(text, "head_dim") or hidden // heads
    matrices = dict(tensors)
    linear = {name: shape for name, shape in matrices.items() if _is_linear(name, shape)}
    adapted = [shape for name, shape in linear.items() if _module(name) in _PROJECTIONS]
    return ModelShape(
        parameters=sum(math.prod(shape) for shape in matrices.values()),
        packed_parameters=sum(math.prod(shape) for shape in linear.values()),
        # Other architectures name them otherwise; then adapters go on most of the linear maps.
        adapter_width=sum(sum(shape) for shape in adapted or linear.values()),
        hidden_size=hidden,
        intermediate_size=_optional(text, "intermediate_size") or 4 * hidden,
        layers=layers,
        key_value_width=key_value_heads * head_dim,
        vocabulary=_number(text, "vocabulary"),
    )


def _is_linear(name: str, shape: Sequence[int]) -> bool:
    parts = name.split(".")
    return (
        len(shape) == 2
        and parts[-1] == "weight"
        and not any(word in part for part in parts for word in _NOT_PACKED)
    )


def _module(name: str) -> str:
    return name.removesuffix(".weight").rpartition(".")[2]


def _number(config: Mapping[str, Any], what: str) -> int:
    number = _optional(config, what)
    if number is None:
        raise ValueError(f"its configuration has no {' or '.join(_NAMES[what])}")
    return number


def _optional(config: Mapping[str, Any], what: str) -> int | None:
    for name in _NAMES[what]:
        value = config.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
    return None
