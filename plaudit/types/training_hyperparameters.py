"""Hyperparameters that every method has, with one meaning, one set of bounds and the same rules.

A `null` default means that the value is derived; the description says how.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

# Bounds that no run needs: without them a number could outgrow the integers of the wire and of the tensors.
StepCount = Annotated[int, Field(ge=1, le=1_000_000_000)]
TokenCount = Annotated[int, Field(ge=1, le=10_000_000)]
ItemCount = Annotated[int, Field(ge=1, le=1_000_000)]
Coefficient = Annotated[float, Field(ge=0.0, le=1000.0, allow_inf_nan=False)]
GradientNorm = Annotated[float, Field(ge=0.0, le=1_000_000_000.0, allow_inf_nan=False)]


class TrainingHyperparameters(BaseModel):
    """Settings of the optimizer, of adapters and of checkpoints."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    learning_rate: float = Field(
        default=1e-6, gt=0.0, le=1.0, allow_inf_nan=False, description="AdamW step size.", examples=[1e-6]
    )
    num_epochs: int = Field(
        default=1,
        ge=1,
        le=10_000,
        description="Passes over the dataset; max_steps overrides it where both are set.",
        examples=[1],
    )
    max_steps: StepCount | None = Field(
        default=None,
        description="Total gradient steps. null: as many as num_epochs passes take.",
        examples=[200],
    )
    global_batch_size: int = Field(
        default=64,
        ge=1,
        le=1_000_000,
        description="Rows per gradient step across all devices.",
        examples=[64],
    )
    seed: int = Field(
        default=42,
        ge=0,
        le=2**32 - 1,
        description="Of sampling, shuffling and adapter weights.",
        examples=[42],
    )
    lora_rank: Annotated[int, Field(ge=1, le=1024)] | None = Field(
        default=None,
        description=(
            "Rank of the adapters on the q, k, v, o, gate, up and down projections. null: full fine-tuning."
        ),
        examples=[16],
    )
    lora_alpha: Annotated[int, Field(ge=1, le=65_536)] | None = Field(
        default=None, description="Scale of the adapters. null: lora_rank.", examples=[16]
    )
    load_in_4bit: bool = Field(
        default=False, description="QLoRA: NF4 base; needs lora_rank and one device.", examples=[False]
    )
    use_unsloth: bool = Field(
        default=False,
        description="Train with unsloth, in an environment of its own; one GPU.",
        examples=[False],
    )
    lr_scheduler: Literal["constant", "linear", "cosine"] = Field(
        default="constant",
        description="Course of the learning rate after the warm-up.",
        examples=["constant"],
    )
    warmup_steps: int = Field(
        default=0,
        ge=0,
        le=1_000_000_000,
        description="Steps over which the learning rate rises from 0.",
        examples=[0],
    )
    weight_decay: Coefficient = Field(default=0.0, description="AdamW weight decay.", examples=[0.0])
    max_grad_norm: GradientNorm = Field(
        default=1.0,
        description="Gradients are scaled down to this norm. 0: they are not.",
        examples=[1.0],
    )
    micro_batch_size: ItemCount | None = Field(
        default=None,
        description=(
            "Rows per forward and backward pass on one device; divides the device's share of "
            "global_batch_size. null: the trainer chooses."
        ),
        examples=[8],
    )
    gradient_checkpointing: Literal["auto", "on", "off"] = Field(
        default="auto",
        description="Trade time for memory. auto: on where an accelerator is used, off on the CPU.",
        examples=["auto"],
    )
    dtype: Literal["auto", "float32", "bfloat16"] = Field(
        default="auto",
        description=(
            "Compute type; trained weights stay float32. auto: bfloat16 where an accelerator supports it, "
            "float32 on the CPU."
        ),
        examples=["auto"],
    )
    checkpoint_every: float = Field(
        default=0.1,
        gt=0.0,
        le=1_000_000_000.0,
        allow_inf_nan=False,
        description=(
            "Below 1 a fraction of the run, else whole steps; with grpo rounded up to a generation boundary."
        ),
        examples=[0.1],
    )
    checkpoint_keep: ItemCount = Field(
        default=3, description="Newest checkpoints that are kept.", examples=[3]
    )

    @property
    def effective_lora_alpha(self) -> int | None:
        """lora_alpha, or lora_rank where it is not set; None for full fine-tuning."""
        return self.lora_rank if self.lora_alpha is None else self.lora_alpha
