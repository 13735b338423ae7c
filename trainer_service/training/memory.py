"""How much memory the loaded model's training takes, and so how many rows pass through it at once.

The reckoning itself is `trainer_service.sizing`, which the service does before a model is loaded, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from transformers import PreTrainedModel

from plaudit.types.hyperparameters import GrpoHyperparameters
from plaudit.types.methods import Hyperparameters
from trainer_service.sizing import (
    ComputeSettings,
    Machine,
    MemoryVerdict,
    ModelShape,
    free_host_memory_bytes,
    held_bytes,
    host_memory_bytes,
    judge_memory,
    rows_that_fit,
    shape_of,
)


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
        bytes_per_value=bytes_per_value,
        gradient_checkpointing=gradient_checkpointing,
        world_size=world_size,
    )


def choose_rows_per_pass(
    hyperparameters: Hyperparameters,
    model: PreTrainedModel,
    *,
    longest_row: int,
    bytes_per_value: int,
    gradient_checkpointing: bool,
    world_size: int = 1,
) -> int:
    """The same for rows of at most `longest_row` tokens."""
    shape = model_shape(model)
    return rows_that_fit(
        shape,
        hyperparameters,
        free_bytes=free_memory_bytes(model.device) - held_bytes(shape, hyperparameters).beside_base,
        longest_row=longest_row,
        settings=ComputeSettings(bytes_per_value, gradient_checkpointing),
        world_size=world_size,
    )


def weigh(
    hyperparameters: Hyperparameters,
    model: PreTrainedModel,
    *,
    longest_prompt: int,
    bytes_per_value: int,
    gradient_checkpointing: bool,
    micro_batch_size: int,
) -> MemoryVerdict:
    """What the run takes on its device, and, where that is more than there is, what would fit.

    `longest_prompt` is in tokens; with sft it is the longest example. `micro_batch_size` rows pass at once.
    """
    return judge_memory(
        model_shape(model),
        hyperparameters,
        machine_of(model.device),
        longest_prompt=longest_prompt,
        quantization=True,
        settings=ComputeSettings(bytes_per_value, gradient_checkpointing),
        micro_batch_size=micro_batch_size,
    )


def machine_of(device: torch.device) -> Machine:
    """The device as it is reckoned with, all of its memory."""
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        return Machine(properties.name, properties.total_memory, is_accelerator=True)
    return Machine("cpu", host_memory_bytes(), is_accelerator=False)


def free_memory_bytes(device: torch.device) -> int:
    """Memory that is free on the device now."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return int(free)
    return free_host_memory_bytes()


def model_shape(model: PreTrainedModel) -> ModelShape:
    """Counts of a model without adapters, packed into 4 bits or not."""
    config: Any = model.config.get_text_config()
    embeddings: Any = model.get_input_embeddings()
    # By attributes, as transformers knows each architecture's own names for them.
    named = {
        **config.to_dict(),
        "hidden_size": config.hidden_size,
        "num_hidden_layers": config.num_hidden_layers,
        "vocab_size": embeddings.num_embeddings,
    }
    return shape_of(named, _weights(model))


def _weights(model: PreTrainedModel) -> Iterator[tuple[str, Sequence[int]]]:
    for name, parameter in model.named_parameters():
        # What is packed into 4 bits has another shape than what it stands for. Its type is not asked for, as
        # bitsandbytes would have to be loaded for that.
        packed: Any = getattr(parameter, "quant_state", None)
        yield name, tuple(parameter.shape if packed is None else packed.shape)
