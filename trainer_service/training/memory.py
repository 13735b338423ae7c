"""How many completions pass through the model at once: an estimate of what a pass holds in memory."""

from __future__ import annotations

from pathlib import Path

import torch
from transformers import PreTrainedModel

from plaudit.types.hyperparameters import GrpoHyperparameters
from plaudit.types.training_hyperparameters import TrainingHyperparameters

USABLE_FRACTION = 0.5
"""Share of the free memory that activations may take; the rest is for what the estimate does not see."""

LARGEST_MICRO_BATCH = 64
"""More rows at once make no pass faster, but pad more."""

_MEMINFO = Path("/proc/meminfo")

_VALUES_PER_LAYER = 14
"""Values kept for the backward pass per token and layer, in units of the hidden size (attention)."""

_MLP_VALUES_PER_LAYER = 4
"""The same in units of the intermediate size."""


def choose_micro_batch_size(
    hyperparameters: GrpoHyperparameters,
    model: PreTrainedModel,
    *,
    longest_prompt: int,
    bytes_per_value: int,
    gradient_checkpointing: bool,
    world_size: int = 1,
) -> int:
    """The job's micro_batch_size, or the largest divisor of a rank's share that is estimated to fit.

    `longest_prompt` is in tokens. Weights must be loaded; gradients and optimizer states are reckoned with.
    """
    return choose_rows_per_pass(
        hyperparameters,
        model,
        longest_row=longest_prompt + hyperparameters.max_response_length,
        with_reference=hyperparameters.kl_coef > 0,
        bytes_per_value=bytes_per_value,
        gradient_checkpointing=gradient_checkpointing,
        world_size=world_size,
    )


def choose_rows_per_pass(
    hyperparameters: TrainingHyperparameters,
    model: PreTrainedModel,
    *,
    longest_row: int,
    with_reference: bool,
    bytes_per_value: int,
    gradient_checkpointing: bool,
    world_size: int = 1,
) -> int:
    """The same for rows of at most `longest_row` tokens, with or without a reference model beside."""
    if hyperparameters.micro_batch_size is not None:
        return hyperparameters.micro_batch_size
    share = max(hyperparameters.global_batch_size // world_size, 1)
    per_row = longest_row * _bytes_per_token(model, bytes_per_value, gradient_checkpointing)
    free = free_memory_bytes(model.device) - _optimizer_bytes(hyperparameters, model, with_reference)
    fitting = max(int(USABLE_FRACTION * free / per_row), 1)
    limit = min(fitting, share, LARGEST_MICRO_BATCH)
    return max(rows for rows in range(1, limit + 1) if share % rows == 0)


def free_memory_bytes(device: torch.device) -> int:
    """Memory that is free on the device now."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return int(free)
    for line in _MEMINFO.read_text("ascii").splitlines():
        name, _, value = line.partition(":")
        if name == "MemAvailable":
            return int(value.split()[0]) * 1024
    raise AssertionError(f"{_MEMINFO} does not say what is available")


def _bytes_per_token(model: PreTrainedModel, bytes_per_value: int, gradient_checkpointing: bool) -> int:
    config = model.config.get_text_config()
    hidden, layers = config.hidden_size, config.num_hidden_layers
    mlp = getattr(config, "intermediate_size", None) or 4 * hidden
    layer = _VALUES_PER_LAYER * hidden + _MLP_VALUES_PER_LAYER * mlp
    # With checkpointing every layer keeps its input, and one at a time all of its values.
    values = layers * hidden + layer if gradient_checkpointing else layers * layer
    return int(values * bytes_per_value)


def _optimizer_bytes(
    hyperparameters: TrainingHyperparameters, model: PreTrainedModel, with_reference: bool
) -> int:
    """Gradients and Adam's two moments in float32, and the reference model where there is one."""
    weights = sum(parameter.numel() for parameter in model.parameters())
    if hyperparameters.lora_rank is not None:
        # Adapters of rank r on every projection: about 2 r / hidden of the weights, and never large.
        return weights // 10
    copies = 4 if with_reference else 3
    return 4 * copies * weights
