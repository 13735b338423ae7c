"""Hyperparameters become a plan of steps and TRL's configuration."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from trl.trainer.grpo_config import GRPOConfig

from plaudit.errors import InvalidArgumentError
from plaudit.types.hyperparameters import GrpoHyperparameters
from plaudit.types.sft_hyperparameters import SftHyperparameters
from plaudit.types.training_hyperparameters import TrainingHyperparameters
from trainer_service.training.batch_split import batch_violations

GRADIENT_CHECKPOINTING_KWARGS: dict[str, Any] = {"use_reentrant": False}


@dataclass(frozen=True, slots=True)
class TrainingPlan:
    """How many steps a run takes and what each is made of.

    A rollout samples `global_batch_size` completions, `group_size` for each of its prompts, and serves
    `num_iterations` optimizer steps of `accumulation_steps` micro-batches on every rank. A checkpoint or a
    pause falls on a generation boundary: a step after which the next one samples anew. `borrowed_prompts` are
    taken from one more pass over the dataset to fill the last step, so that no prompt is left out.
    Evaluations are `evaluation_steps` apart, on such boundaries too; 0: there are none.
    """

    row_count: int
    prompts_per_step: int
    group_size: int
    micro_batch_size: int
    accumulation_steps: int
    num_iterations: int
    total_steps: int
    checkpoint_steps: int
    borrowed_prompts: int
    evaluation_steps: int = 0

    @property
    def global_batch_size(self) -> int:
        """Completions of a rollout, over all ranks."""
        return self.prompts_per_step * self.group_size

    @property
    def micro_steps_per_rollout(self) -> int:
        """Forward and backward passes of a rank between two rollouts."""
        return self.accumulation_steps * self.num_iterations

    @property
    def rollout_count(self) -> int:
        """Rollouts of the whole run."""
        return math.ceil(self.total_steps / self.num_iterations)

    def is_boundary(self, step: int) -> bool:
        """Whether the step after `step` samples anew, so that a run can be left and taken up here."""
        return step % self.num_iterations == 0

    def is_evaluated(self, step: int) -> bool:
        """Whether the policy is evaluated after `step`; 0 is before the first one."""
        return self.evaluation_steps > 0 and (step % self.evaluation_steps == 0 or step == self.total_steps)

    def prompts_consumed(self, step: int) -> int:
        """Prompts taken from the passes over the dataset by the time `step` is done."""
        return math.ceil(step / self.num_iterations) * self.prompts_per_step


def plan_training(
    hyperparameters: GrpoHyperparameters, *, row_count: int, micro_batch_size: int, world_size: int = 1
) -> TrainingPlan:
    """Plans a run over `row_count` prompts.

    Raises InvalidArgumentError where the dataset has fewer prompts than a step takes, or the batch cannot be
    split over the ranks and into micro-batches, with values that work.
    """
    h = hyperparameters
    too_few = None
    if row_count < h.prompts_per_step:
        too_few = (
            f"{h.global_batch_size} takes {h.prompts_per_step} prompts a step "
            f"({h.rollouts_per_prompt} completions each), but the dataset has {row_count}"
        )
    return _plan(
        h,
        row_count=row_count,
        prompts_per_step=h.prompts_per_step,
        group_size=h.rollouts_per_prompt,
        num_iterations=h.num_iterations,
        micro_batch_size=micro_batch_size,
        world_size=world_size,
        too_few=too_few,
        evaluate_every=h.effective_eval_every,
    )


def plan_imitation(
    hyperparameters: SftHyperparameters, *, row_count: int, micro_batch_size: int, world_size: int = 1
) -> TrainingPlan:
    """Plans a run of sft over `row_count` examples: "prompts" and "completions" of the plan are examples.

    Raises InvalidArgumentError where there are fewer examples than a step takes, or the micro-batch does not
    divide a rank's share of the batch.
    """
    size = hyperparameters.global_batch_size
    return _plan(
        hyperparameters,
        row_count=row_count,
        prompts_per_step=size,
        group_size=1,
        num_iterations=1,
        micro_batch_size=micro_batch_size,
        world_size=world_size,
        too_few=None
        if row_count >= size
        else f"{size} takes {size} examples a step, but there are {row_count}",
    )


def _plan(
    h: TrainingHyperparameters,
    *,
    row_count: int,
    prompts_per_step: int,
    group_size: int,
    num_iterations: int,
    micro_batch_size: int,
    world_size: int,
    too_few: str | None,
    evaluate_every: float | None = None,
) -> TrainingPlan:
    violations = batch_violations(
        h.global_batch_size,
        world_size=world_size,
        group_size=group_size,
        micro_batch_size=micro_batch_size,
        micro_is_given=h.micro_batch_size is not None,
        most=row_count * group_size,
        too_few=too_few,
    )
    if violations:
        raise InvalidArgumentError(violations)
    rollouts = math.ceil(h.num_epochs * row_count / prompts_per_step)
    total_steps = h.max_steps or rollouts * num_iterations

    def apart(every: float) -> int:
        steps = every * total_steps if every < 1 else every
        return math.ceil(steps / num_iterations) * num_iterations

    return TrainingPlan(
        row_count=row_count,
        prompts_per_step=prompts_per_step,
        group_size=group_size,
        micro_batch_size=micro_batch_size,
        accumulation_steps=h.global_batch_size // world_size // micro_batch_size,
        num_iterations=num_iterations,
        total_steps=total_steps,
        checkpoint_steps=apart(h.checkpoint_every),
        borrowed_prompts=0 if h.max_steps else rollouts * prompts_per_step - h.num_epochs * row_count,
        evaluation_steps=0 if evaluate_every is None else apart(evaluate_every),
    )


def compute_dtype(hyperparameters: TrainingHyperparameters, device: torch.device) -> torch.dtype:
    """Type that the passes through the model compute in; the trained weights stay float32."""
    if hyperparameters.dtype == "auto":
        bfloat16 = device.type == "cuda" and torch.cuda.is_bf16_supported()
    else:
        bfloat16 = hyperparameters.dtype == "bfloat16"
    return torch.bfloat16 if bfloat16 else torch.float32


def uses_gradient_checkpointing(hyperparameters: TrainingHyperparameters, device: torch.device) -> bool:
    """Whether activations are computed again in the backward pass, to save memory."""
    if hyperparameters.gradient_checkpointing == "auto":
        return device.type != "cpu"
    return hyperparameters.gradient_checkpointing == "on"


def optimizer_arguments(hyperparameters: TrainingHyperparameters, device: torch.device) -> dict[str, Any]:
    """What TRL's configurations have in common: precision, optimizer, and that records are ours."""
    h = hyperparameters
    return {
        "use_cpu": device.type == "cpu",
        "bf16": compute_dtype(h, device) is torch.bfloat16,
        "fp16": False,
        "seed": h.seed,
        "gradient_checkpointing": uses_gradient_checkpointing(h, device),
        "gradient_checkpointing_kwargs": GRADIENT_CHECKPOINTING_KWARGS,
        "optim": "adamw_torch",
        "adam_beta1": 0.9,
        "adam_beta2": 0.999,
        "adam_epsilon": 1e-8,
        "learning_rate": h.learning_rate,
        # constant_with_warmup is constant where there is no warm-up
        "lr_scheduler_type": "constant_with_warmup" if h.lr_scheduler == "constant" else h.lr_scheduler,
        "warmup_steps": h.warmup_steps,
        "weight_decay": h.weight_decay,
        "max_grad_norm": h.max_grad_norm,
        # Logs, checkpoints and evaluations are ours
        "logging_strategy": "no",
        "logging_nan_inf_filter": True,
        "save_strategy": "no",
        "eval_strategy": "no",
        "report_to": [],
        "disable_tqdm": True,
        # The data are rows that are already tokenized
        "remove_unused_columns": False,
        "dataloader_num_workers": 0,
        "dataloader_pin_memory": False,
    }


def grpo_config(
    hyperparameters: GrpoHyperparameters, plan: TrainingPlan, *, device: torch.device, scratch: Path
) -> GRPOConfig:
    """TRL's configuration of the run. `scratch` is a folder that TRL may create; nothing is written to it."""
    h = hyperparameters
    return GRPOConfig(
        output_dir=str(scratch),
        **optimizer_arguments(h, device),
        # The model's own dropout would make the policy that is trained another one than that which sampled.
        disable_dropout=True,
        # Steps
        max_steps=plan.total_steps,
        per_device_train_batch_size=plan.micro_batch_size,
        gradient_accumulation_steps=plan.accumulation_steps,
        num_iterations=h.num_iterations,
        # Rollouts: ours samples, by these values; TRL is told them because it scales log-probabilities
        num_generations=h.rollouts_per_prompt,
        max_completion_length=h.max_response_length,
        temperature=h.temperature,
        top_p=h.top_p,
        top_k=h.top_k,
        # Loss
        loss_type=h.loss_type,
        scale_rewards=h.scale_rewards,
        beta=h.kl_coef,
        use_bias_correction_kl=True,
        epsilon=h.clip_epsilon,
        epsilon_high=h.clip_epsilon,
        # Truncated completions are masked by what the rollout says, not by the look of the last token.
        mask_truncated_completions=False,
        # What could not be scored moves nothing, the routers of a mixture of experts included.
        router_aux_loss_coef=0.0,
        # Completions are written by us
        log_completions=False,
    )
