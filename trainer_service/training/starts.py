"""The policy that a run starts from: the base model, or what other jobs' checkpoints made of it.

Every run of a job, and the export of its checkpoints, builds the same one again. A checkpoint of the job
itself is loaded onto it afterwards, by the trainer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel
from peft.tuners.lora import LoraLayer
from torch import Tensor, nn
from torch.nn.functional import linear
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from plaudit.types.jobs import InitCheckpoint
from plaudit.types.training_hyperparameters import TrainingHyperparameters
from trainer_service.training.checkpoints import open_checkpoint
from trainer_service.training.models import load_policy

_ADAPTER_CONFIG = "adapter_config.json"


@dataclass(frozen=True, slots=True)
class VerifiedInit:
    """A verified checkpoint to start from. `on_four_bits`: its adapters were trained on a base of 4 bits."""

    folder: Path
    on_four_bits: bool

    @property
    def has_adapters(self) -> bool:
        """Whether it holds adapters, and not all weights."""
        return (self.folder / _ADAPTER_CONFIG).is_file()


@dataclass(frozen=True, slots=True)
class StartingPolicy:
    """A model and its tokenizer, as `load_policy` gives them.

    `is_merged`: adapters of other jobs are part of it, so that no file holds its weights.
    """

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    is_merged: bool


def verify_inits(artifact_root: Path, inits: Sequence[InitCheckpoint]) -> tuple[VerifiedInit, ...]:
    """Opens the checkpoints that a run starts from. Raises CheckpointError."""
    return tuple(
        VerifiedInit(open_checkpoint(artifact_root, init.uri).folder, init.on_four_bits) for init in inits
    )


def load_start(
    base_model: str,
    hyperparameters: TrainingHyperparameters,
    device: torch.device,
    inits: Sequence[VerifiedInit] = (),
    *,
    unpacked: bool = False,
) -> StartingPolicy:
    """Loads the base model and puts `inits` onto it, in their order.

    One that holds all weights takes the place of what is before it; adapters are merged. Where the base is
    kept in 4 bits they are added in the passes instead, unrounded. Where they were trained on a base of 4
    bits, the base keeps those values in float32. `unpacked`: a base of 4 bits is loaded so as well, to be
    merged and saved. Raises ModelError.
    """
    source, adapters = base_model, list[VerifiedInit]()
    for init in inits:
        if init.has_adapters:
            adapters.append(init)
        else:
            source, adapters = str(init.folder), []
    in_four_bits = hyperparameters.load_in_4bit or any(adapter.on_four_bits for adapter in adapters)
    keeps_packed = hyperparameters.load_in_4bit and not unpacked
    loading = hyperparameters.model_copy(update={"load_in_4bit": in_four_bits})
    model, tokenizer = load_policy(source, loading, device)
    if in_four_bits and not keeps_packed:
        packed: Any = model
        packed.dequantize()
        packed.float()
        # transformers leaves the mark, by which TRL would train adapters on it in bfloat16.
        packed.is_loaded_in_4bit = False
    for adapter in adapters:
        model = _with_frozen(model, adapter) if keeps_packed else _merged(model, adapter)
    return StartingPolicy(model, tokenizer, bool(adapters))


def _merged(model: PreTrainedModel, adapter: VerifiedInit) -> PreTrainedModel:
    adapted: Any = PeftModel.from_pretrained(model, adapter.folder)
    merged: PreTrainedModel = adapted.merge_and_unload()
    # peft has frozen what the adapters lie on.
    return merged.requires_grad_(True)


def _with_frozen(model: PreTrainedModel, adapter: VerifiedInit) -> PreTrainedModel:
    """The model of 4 bits, whose maps add what the adapters say.

    Merged into 4 bits it would be rounded away: the weights lie on the very values that those can hold.
    """
    adapted: Any = PeftModel.from_pretrained(model, adapter.folder)
    layers: list[Any] = [module for module in adapted.modules() if isinstance(module, LoraLayer)]
    for layer in layers:
        name = layer.active_adapters[0]
        add = _Addition(
            down=layer.lora_A[name].weight.detach(),
            up=layer.lora_B[name].weight.detach(),
            scale=layer.scaling[name],
        )
        layer.get_base_layer().register_forward_hook(add)
    bare: PreTrainedModel = adapted.unload()
    return bare


@dataclass(frozen=True, slots=True)
class _Addition:
    """What a LoRA adapter adds to the output of a linear map; `down` is [rank, in] and `up` [out, rank]."""

    down: Tensor
    up: Tensor
    scale: float

    def __call__(self, module: nn.Module, arguments: tuple[Tensor, ...], output: Tensor) -> Tensor:
        added = linear(linear(arguments[0].to(self.down.dtype), self.down), self.up) * self.scale
        return output + added.to(output.dtype)
