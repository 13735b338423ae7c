"""What training holds in memory, by parts; also how many rows pass through the model at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from plaudit.types.hyperparameters import GrpoHyperparameters
from plaudit.types.memory import MemoryEstimate
from plaudit.types.methods import Hyperparameters
from plaudit.types.sft_hyperparameters import SftHyperparameters
from plaudit.types.training_hyperparameters import TrainingHyperparameters
from trainer_service.sizing.machine import Machine
from trainer_service.sizing.shape import ModelShape

USABLE_FRACTION: Final = 0.5
"""Share of the free memory that activations may take where the trainer chooses how many rows pass at once;
the rest is for what the estimate does not see."""

LARGEST_MICRO_BATCH: Final = 64
"""More rows at once make no pass faster, but pad more."""

_VALUES_PER_LAYER: Final = 14
"""Values kept for the backward pass per token and layer, in units of the hidden size (attention)."""
_MLP_VALUES_PER_LAYER: Final = 4
"""The same in units of the intermediate size."""

_WEIGHT_BYTES: Final = 4
"""Trained weights, their gradients and each of Adam's moments are float32."""
_PACKED_BYTES: Final = 0.516
"""Of a weight in NF4: half a byte, and its share of the scales, which are quantised as well."""

_TILE_TOKENS: Final = 4096
_TILE_VOCABULARY: Final = 8192
"""TRL's fused LM head holds tiles of this size of grpo's logits, and never all of them."""
_LOGIT_COPIES: Final = 3
"""Logits, their softmax and its gradient; or, in a rollout, what is sorted and summed to draw by."""


@dataclass(frozen=True, slots=True)
class HeldBytes:
    """What training holds all the time, in bytes."""

    base_weights: int
    adapters: int
    gradients: int
    optimizer: int
    reference: int

    @property
    def beside_base(self) -> int:
        """What is still to come when the base model is loaded."""
        return self.adapters + self.gradients + self.optimizer + self.reference


@dataclass(frozen=True, slots=True)
class ComputeSettings:
    """How passes are computed: bytes of a value, and whether activations are computed twice, not kept."""

    bytes_per_value: int
    gradient_checkpointing: bool


def compute_settings(h: TrainingHyperparameters, *, on_accelerator: bool) -> ComputeSettings:
    """What `dtype` and `gradient_checkpointing` come to."""
    bfloat16 = on_accelerator if h.dtype == "auto" else h.dtype == "bfloat16"
    checkpointing = on_accelerator if h.gradient_checkpointing == "auto" else h.gradient_checkpointing == "on"
    return ComputeSettings(2 if bfloat16 else 4, checkpointing)


def estimate_memory(
    shape: ModelShape,
    h: Hyperparameters,
    machine: Machine,
    *,
    longest_prompt: int | None,
    settings: ComputeSettings | None = None,
    micro_batch_size: int | None = None,
    world_size: int = 1,
) -> MemoryEstimate:
    """What training takes on each of `world_size` devices like `machine`.

    `longest_prompt` is in tokens (with sft the whole example); None: as long as the job allows. `settings`
    None: what the hyperparameters ask for. `micro_batch_size` None: the job's, or what the trainer would
    choose.
    """
    settings = settings or compute_settings(h, on_accelerator=machine.is_accelerator)
    held = held_bytes(shape, h)
    longest_row = _longest_row(h, longest_prompt)
    rows = micro_batch_size or rows_that_fit(
        shape,
        h,
        free_bytes=machine.memory_bytes - held.base_weights - held.beside_base,
        longest_row=longest_row,
        settings=settings,
        world_size=world_size,
    )
    return MemoryEstimate(
        device=machine.name,
        available_bytes=machine.memory_bytes,
        weights_bytes=held.base_weights + held.adapters,
        gradients_bytes=held.gradients,
        optimizer_bytes=held.optimizer,
        reference_bytes=held.reference,
        activations_bytes=rows * longest_row * activation_bytes_per_token(shape, settings)
        + cast_weight_bytes(shape, h, settings),
        logits_bytes=_logits_bytes(shape, h, rows * longest_row, settings),
        rollout_bytes=_rollout_bytes(shape, h, longest_row, settings, world_size),
        micro_batch_size=rows,
        longest_row=longest_row,
    )


def rows_that_fit(
    shape: ModelShape,
    h: TrainingHyperparameters,
    *,
    free_bytes: int,
    longest_row: int,
    settings: ComputeSettings,
    world_size: int = 1,
) -> int:
    """The job's micro_batch_size, or the largest divisor of a rank's share of the batch that is estimated to
    fit into `free_bytes`: what is left beside weights, gradients, optimizer states and reference.
    """
    if h.micro_batch_size is not None:
        return h.micro_batch_size
    share = max(h.global_batch_size // world_size, 1)
    per_row = longest_row * activation_bytes_per_token(shape, settings)
    if isinstance(h, SftHyperparameters):
        per_row += _logits_bytes(shape, h, longest_row, settings)
    free = USABLE_FRACTION * (free_bytes - cast_weight_bytes(shape, h, settings))
    fitting = max(int(free / per_row), 1)
    limit = min(fitting, share, LARGEST_MICRO_BATCH)
    return max(rows for rows in range(1, limit + 1) if share % rows == 0)


def held_bytes(shape: ModelShape, h: TrainingHyperparameters) -> HeldBytes:
    """What training holds all the time."""
    adapters = 0 if h.lora_rank is None else h.lora_rank * shape.adapter_width
    trained = adapters or shape.parameters
    has_reference = isinstance(h, GrpoHyperparameters) and h.kl_coef > 0 and not adapters
    return HeldBytes(
        base_weights=_base_bytes(shape, h),
        adapters=_WEIGHT_BYTES * adapters,
        gradients=_WEIGHT_BYTES * trained,
        optimizer=2 * _WEIGHT_BYTES * trained,
        reference=_WEIGHT_BYTES * shape.parameters if has_reference else 0,
    )


def activation_bytes_per_token(shape: ModelShape, settings: ComputeSettings) -> int:
    """What the layers keep of a token for the backward pass."""
    layer = _VALUES_PER_LAYER * shape.hidden_size + _MLP_VALUES_PER_LAYER * shape.intermediate_size
    # With checkpointing every layer keeps its input, and one at a time all of its values.
    kept = shape.layers * shape.hidden_size + layer
    values = kept if settings.gradient_checkpointing else shape.layers * layer
    return values * settings.bytes_per_value


def cast_weight_bytes(shape: ModelShape, h: TrainingHyperparameters, settings: ComputeSettings) -> int:
    """Weights in the type that is computed in, which a pass keeps for the way back beside those in float32.

    With checkpointing they are made again a layer at a time, as those in 4 bits always are.
    """
    if settings.bytes_per_value == _WEIGHT_BYTES or settings.gradient_checkpointing or h.load_in_4bit:
        return 0
    return settings.bytes_per_value * shape.packed_parameters


def _base_bytes(shape: ModelShape, h: TrainingHyperparameters) -> int:
    if not h.load_in_4bit:
        return _WEIGHT_BYTES * shape.parameters
    rest = shape.parameters - shape.packed_parameters
    return int(_PACKED_BYTES * shape.packed_parameters) + _WEIGHT_BYTES * rest


def _longest_row(h: Hyperparameters, longest_prompt: int | None) -> int:
    if isinstance(h, SftHyperparameters):
        return min(longest_prompt or h.max_length, h.max_length)
    return min(longest_prompt or h.max_prompt_length, h.max_prompt_length) + h.max_response_length


def _logits_bytes(
    shape: ModelShape, h: TrainingHyperparameters, tokens: int, settings: ComputeSettings
) -> int:
    if isinstance(h, SftHyperparameters):
        return tokens * shape.vocabulary * (settings.bytes_per_value + 2 * _WEIGHT_BYTES)
    tile = min(tokens, _TILE_TOKENS) * min(shape.vocabulary, _TILE_VOCABULARY)
    return tile * _LOGIT_COPIES * _WEIGHT_BYTES


def _rollout_bytes(
    shape: ModelShape, h: Hyperparameters, longest_row: int, settings: ComputeSettings, world_size: int
) -> int:
    if isinstance(h, SftHyperparameters):
        return 0
    rows = max(h.global_batch_size // world_size, 1)
    keys_and_values = 2 * shape.layers * shape.key_value_width * settings.bytes_per_value
    drawing = _LOGIT_COPIES * _WEIGHT_BYTES * shape.vocabulary
    return rows * (longest_row * keys_and_values + drawing)
