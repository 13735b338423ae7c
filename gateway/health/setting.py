"""What of a job's spec its series are read by."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from plaudit.types import metrics as names
from plaudit.types.hyperparameters import GrpoHyperparameters
from plaudit.types.jobs import TrainingJobSpec

REPETITION_REWARD: Final = "repetition_penalty"
"""The built-in reward that measures repeated n-grams; its value is at most 0."""


@dataclass(frozen=True, slots=True)
class RewardSetting:
    """A reward of the job, by the name that its metrics have. `reward` is its name on its server."""

    name: str
    reward: str
    weight: float

    @property
    def is_held_out(self) -> bool:
        """Whether it is scored and shown, and never taught."""
        return self.weight == 0.0


@dataclass(frozen=True, slots=True)
class JobSetting:
    """How a job of grpo trains; of sft `is_grpo` is False and the rest says nothing."""

    is_grpo: bool
    num_iterations: int = 1
    groups_per_rollout: int = 1
    max_response_length: int = 1
    has_reference: bool = False
    rewards: tuple[RewardSetting, ...] = ()


def setting_of(spec: TrainingJobSpec) -> JobSetting:
    """The setting of a job."""
    h = spec.hyperparameters
    if not isinstance(h, GrpoHyperparameters):
        return JobSetting(is_grpo=False)
    return JobSetting(
        is_grpo=True,
        num_iterations=h.num_iterations,
        groups_per_rollout=h.prompts_per_step,
        max_response_length=h.max_response_length,
        has_reference=h.kl_coef > 0,
        rewards=tuple(RewardSetting(r.name, r.reward, r.weight) for r in spec.rewards),
    )


def watched_metrics(setting: JobSetting) -> list[str]:
    """Names of the metrics that are judged."""
    of_every_step = [names.STEP_NOT_FINITE]
    if not setting.is_grpo:
        return of_every_step
    return [
        *of_every_step,
        names.REWARD_MEAN,
        names.REWARD_STD_BATCH,
        names.ZERO_STD_GROUP_FRACTION,
        names.SMALL_GROUP_FRACTION,
        names.UNSCORED_FRACTION,
        names.RESPONSE_LENGTH_MEAN,
        names.TRUNCATED_FRACTION,
        names.POLICY_ENTROPY,
        names.KL_DIV,
        *(
            names.reward_metric(reward.name, part)
            for reward in setting.rewards
            for part in ("mean", "std", "failed_fraction", "protocol_errors")
        ),
    ]
