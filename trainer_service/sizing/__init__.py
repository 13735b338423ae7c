"""How much memory a run takes, reckoned without loading the model or a tensor library."""

from trainer_service.sizing.advice import MemoryVerdict, judge_memory
from trainer_service.sizing.estimate import (
    ComputeSettings,
    compute_settings,
    estimate_memory,
    held_bytes,
    rows_that_fit,
)
from trainer_service.sizing.machine import Machine, free_host_memory_bytes, host_memory_bytes
from trainer_service.sizing.model_files import BrokenModelError, UnknownModelError, read_shape
from trainer_service.sizing.shape import ModelShape, shape_of

__all__ = [
    "BrokenModelError",
    "ComputeSettings",
    "Machine",
    "MemoryVerdict",
    "ModelShape",
    "UnknownModelError",
    "compute_settings",
    "estimate_memory",
    "free_host_memory_bytes",
    "held_bytes",
    "host_memory_bytes",
    "judge_memory",
    "read_shape",
    "rows_that_fit",
    "shape_of",
]
