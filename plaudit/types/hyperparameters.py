"""Hyperparameters of `method: grpo`: names, defaults, bounds and meaning.

Defaults are the product's own; docs/hyperparameters.md shows them beside TRL's. Those that every method has
are in `training_hyperparameters.py`.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from plaudit.types.alerts import AlertKind
from plaudit.types.training_hyperparameters import (
    Coefficient,
    ItemCount,
    TokenCount,
    TrainingHyperparameters,
)

EVAL_EVERY = 0.1
"""Part of the run between two evaluations where a job names a dataset for them and no distance."""


class GrpoHyperparameters(TrainingHyperparameters):
    """Settings of Group Relative Policy Optimization (DeepSeekMath, arXiv:2402.03300)."""

    rollouts_per_prompt: int = Field(
        default=8,
        ge=2,
        le=1024,
        description="Group size: completions sampled for each prompt.",
        examples=[8],
    )
    kl_coef: Coefficient = Field(
        default=0.001,
        description="KL penalty against the frozen reference model; 0 loads no reference.",
        examples=[0.001],
    )
    max_prompt_length: TokenCount = Field(
        default=1024,
        description="Tokens; a longer prompt loses the start of its longest user turn, and is counted.",
        examples=[1024],
    )
    max_response_length: TokenCount = Field(
        default=2048,
        description="Tokens; a longer completion is cut, and marked truncated.",
        examples=[2048],
    )
    global_batch_size: int = Field(
        default=64,
        ge=2,
        le=1_000_000,
        description="Completions per gradient step across all devices; a multiple of rollouts_per_prompt.",
        examples=[64],
    )
    temperature: float = Field(
        default=1.0,
        gt=0.0,
        le=100.0,
        allow_inf_nan=False,
        description="Sampling temperature.",
        examples=[1.0],
    )
    top_p: float = Field(
        default=1.0,
        gt=0.0,
        le=1.0,
        allow_inf_nan=False,
        description="Nucleus sampling: keep the smallest set of tokens with this probability. 1: all.",
        examples=[1.0],
    )
    top_k: int = Field(
        default=0, ge=0, le=10_000_000, description="Keep the k most probable tokens. 0: all.", examples=[0]
    )
    num_iterations: int = Field(
        default=1,
        ge=1,
        le=64,
        description="Gradient steps on each rollout batch; 2 doubles the steps of an epoch.",
        examples=[1],
    )
    clip_epsilon: float = Field(
        default=0.2,
        gt=0.0,
        lt=1.0,
        allow_inf_nan=False,
        description="Clipping range of the importance ratio.",
        examples=[0.2],
    )
    loss_type: Literal["dapo", "grpo", "dr_grpo", "bnpo"] = Field(
        default="dapo", description="How token losses are averaged; TRL's names.", examples=["dapo"]
    )
    scale_rewards: Literal["group", "batch", "none"] = Field(
        default="group",
        description="Divisor of the advantages: the group's or the batch's standard deviation, or 1.",
        examples=["group"],
    )
    mask_truncated: bool = Field(
        default=False,
        description="Leave truncated completions out of the loss (they stay in the baseline).",
        examples=[False],
    )
    eval_dataset_id: str | None = Field(
        default=None,
        min_length=1,
        max_length=128,
        description="Id or name of the dataset of held-out prompts. null: the job is not evaluated.",
        examples=["additions-held-out"],
    )
    eval_every: Annotated[float, Field(gt=0.0, le=1_000_000_000.0, allow_inf_nan=False)] | None = Field(
        default=None,
        description=(
            "As checkpoint_every, for evaluations, which are taken before the first step and after the last "
            "too. null: 0.1 where there is an eval_dataset_id."
        ),
        examples=[0.1],
    )
    eval_temperature: float = Field(
        default=0.0,
        ge=0.0,
        le=100.0,
        allow_inf_nan=False,
        description=(
            "Sampling temperature of evaluations, with the job's top_p and top_k. 0: greedy, the likeliest "
            "token."
        ),
        examples=[0.0],
    )
    eval_max_prompts: ItemCount = Field(
        default=256,
        description=(
            "Prompts of an evaluation, one completion each; of a larger dataset as many rows, spread over "
            "it, the same each time."
        ),
        examples=[256],
    )
    max_unscored_fraction: float = Field(
        default=0.5,
        ge=0.0,
        le=1.0,
        allow_inf_nan=False,
        description="A step with a larger share of completions that could not be scored pauses the job.",
        examples=[0.5],
    )
    log_completions: bool = Field(
        default=True, description="Keep every completion with its scores.", examples=[True]
    )
    rollout_engine: Literal["auto", "transformers", "vllm"] = Field(
        default="auto", description="What samples. auto: transformers.", examples=["auto"]
    )
    stop_on: tuple[AlertKind, ...] = Field(
        default=(),
        description="Kinds of alerts of severity warning or critical that pause the job.",
        examples=[["policy_collapse"]],
    )

    @property
    def prompts_per_step(self) -> int:
        """Prompts that one gradient step takes."""
        return self.global_batch_size // self.rollouts_per_prompt

    @property
    def effective_eval_every(self) -> float | None:
        """eval_every, or its default; None where the job is not evaluated."""
        if self.eval_dataset_id is None:
            return None
        return EVAL_EVERY if self.eval_every is None else self.eval_every
