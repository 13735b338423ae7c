"""What a base model of 4 bits needs of bitsandbytes, which takes a second to load, and is for it alone."""

from __future__ import annotations

from typing import Final

from bitsandbytes.nn.modules import Linear4bit
from torch import nn

from trainer_service.training.overrides import Dependency

FOUR_BIT_DEPENDENCIES: Final = (
    Dependency(
        Linear4bit.forward,
        "relied on",
        "packs weights for inference only where support_avx512bf16_for_cpu says so",
        "af7a066899b0af10b413bb3c1a1c00165f3707290567d2c4558b4e1b9493fd8f",
    ),
)
"""As `overrides.DEPENDENCIES`, of bitsandbytes."""


def keep_trainable(model: nn.Module) -> None:
    """Keeps the 4-bit maps of `model` as they are loaded."""
    for module in model.modules():
        if isinstance(module, Linear4bit):
            # On some processors a pass in eval mode would pack the weights for good, for a product without a
            # gradient: the first rollout would cut the layers below off from training.
            module.support_avx512bf16_for_cpu = False
