"""What a training job asks for (`TrainingJobSpec`) and what a trainer is handed (`RunSpec`)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator

from plaudit.types.access import OPEN_TO_ALL, ServerAccess
from plaudit.types.addresses import Address
from plaudit.types.hyperparameters import GrpoHyperparameters
from plaudit.types.methods import (
    Hyperparameters,
    Method,
    check_hyperparameters,
    check_rewards_of_method,
    hyperparameters_of,
)
from plaudit.types.model_names import ModelName
from plaudit.types.preflight import PreflightMode

DEFAULT_REWARD_TIMEOUT_SECONDS = 60.0


class RewardBinding(BaseModel):
    """A reward of a job: which reward of which server, under which name, with which weight."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    name: str = Field(
        pattern=r"^[a-z][a-z0-9_]{0,62}$",
        description="Name in metrics, unique within the job. Default: the name of the reward.",
        examples=["exact_answer"],
    )
    server: str = Field(
        min_length=1, max_length=64, description="Name or id of a reward server.", examples=["builtin"]
    )
    reward: str = Field(
        pattern=r"^[a-z][a-z0-9_]{0,62}$",
        description="Name of the reward on that server.",
        examples=["exact_answer"],
    )
    weight: float = Field(
        default=1.0,
        allow_inf_nan=False,
        ge=-1e6,
        le=1e6,
        description="Factor in the weighted sum. 0: held out, that is scored and shown, and never taught.",
        examples=[1.0],
    )
    config: dict[str, Any] = Field(
        default_factory=dict, description="Configuration of the reward, by its JSON Schema.", examples=[{}]
    )
    timeout_seconds: float = Field(
        default=DEFAULT_REWARD_TIMEOUT_SECONDS,
        ge=0.001,
        le=86_400.0,
        allow_inf_nan=False,
        description="Time budget of one batch, in seconds.",
        examples=[60.0],
    )
    max_attempts: int = Field(
        default=5,
        ge=1,
        le=100,
        description="Batches that one completion may travel in, the first included. 1: never tried again.",
        examples=[5],
    )
    retry_seconds: float = Field(
        default=300.0,
        gt=0.0,
        le=86_400.0,
        allow_inf_nan=False,
        description=(
            "Seconds after a completion was first sent beyond which it is not sent again. One that could not "
            "be sent at all is given up when its server has scored nothing for as long."
        ),
        examples=[300.0],
    )

    @property
    def is_held_out(self) -> bool:
        """Whether it is scored and shown, and never taught."""
        return self.weight == 0.0

    @field_validator("config")
    @classmethod
    def _config_is_json(cls, config: dict[str, Any]) -> dict[str, Any]:
        try:
            json.dumps(config, allow_nan=False)
        except ValueError:
            raise ValueError(
                "it holds NaN or an infinite number, which JSON does not have; write null, or leave it out"
            ) from None
        return config


class TrainingJobSpec(BaseModel):
    """What to train; every default filled in, immutable."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    base_model: ModelName = Field(
        description='Hub id or path of the base model, or "builtin:tiny".',
        examples=["builtin:tiny"],
    )
    dataset_id: str = Field(
        min_length=1,
        max_length=128,
        description='Id or name of a dataset, or "builtin:additions".',
        examples=["builtin:additions"],
    )
    output_name: str = Field(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$",
        description="Name of the trained model: letters, digits, dot, dash and underscore, at most 64.",
        examples=["adder"],
    )
    method: Method = Field(
        default="grpo",
        description='How to train: "grpo" by rewards, "sft" by answers to imitate.',
        examples=["grpo"],
    )
    hyperparameters: Hyperparameters = Field(
        default_factory=dict, validate_default=True, description="Settings of the method.", examples=[{}]
    )
    rewards: tuple[RewardBinding, ...] = Field(
        default=(),
        validate_default=True,
        max_length=32,
        description="What is reinforced: at least one reward for grpo, none for sft.",
        examples=[[{"server": "builtin", "reward": "exact_answer"}]],
    )
    resume_from: str | None = Field(
        default=None,
        min_length=1,
        max_length=256,
        description=(
            'Job whose newest checkpoint is the start, or one checkpoint of it: "job_...", "job_...@120". '
            "null: the base model."
        ),
        examples=["job_01@120"],
    )
    preflight: PreflightMode = Field(
        default="stop",
        description='What critical findings before the first step do: "stop" or "warn"; "off": no preflight.',
        examples=["stop"],
    )

    @field_validator("hyperparameters", mode="wrap")
    @classmethod
    def _hyperparameters_of_method(cls, value: object, _: object, info: ValidationInfo) -> Hyperparameters:
        return check_hyperparameters(value, info)

    @field_validator("rewards")
    @classmethod
    def _rewards_of_method(
        cls, rewards: tuple[RewardBinding, ...], info: ValidationInfo
    ) -> tuple[RewardBinding, ...]:
        check_rewards_of_method(rewards, info)
        return rewards


def accepted_job_spec(data: Mapping[str, Any]) -> TrainingJobSpec:
    """The spec in JSON-like data that was checked when the job was accepted, without checking it again.

    So a job stays readable where a rule has become stricter since; a field of another version is passed over.
    """
    hyperparameters: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in data["hyperparameters"].items()
    }
    return TrainingJobSpec.model_construct(
        **{
            **data,
            "hyperparameters": hyperparameters_of(data["method"]).model_construct(None, **hyperparameters),
            "rewards": tuple(RewardBinding.model_construct(None, **binding) for binding in data["rewards"]),
        }
    )


class DatasetReference(BaseModel):
    """Where a trainer finds the rows: a file in the normal form, under the artifact root."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    uri: str = Field(description="Parquet file, relative to the artifact root.")
    sha256: str = Field(description="SHA-256 of the file, hex.")
    row_count: int = Field(ge=1, description="Rows in it.")


class RewardTarget(BaseModel):
    """A reward binding with the addresses that its server had when the run was started."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    binding: RewardBinding = Field(description="As the job has it.")
    addresses: tuple[Address, ...] = Field(min_length=1, description="Replicas, host:port each.")
    access: ServerAccess = Field(
        default=OPEN_TO_ALL, description="What it takes to be let in; secrets by name, never held."
    )


class InitCheckpoint(BaseModel):
    """A checkpoint that a run starts from: all weights, or adapters for what comes before it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    uri: str = Field(description="Folder of the checkpoint, relative to the artifact root.")
    on_four_bits: bool = Field(
        default=False, description="Whether it holds adapters that were trained on a base of 4 bits."
    )


class RunSpec(BaseModel):
    """The frozen, resolved configuration of a run; travels as JSON in StartRunRequest.spec_json."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    base_model: str = Field(description="TrainingJobSpec.base_model.")
    output_name: str = Field(description="TrainingJobSpec.output_name.")
    method: Method = Field(description="TrainingJobSpec.method.")
    hyperparameters: Hyperparameters = Field(description="Every default filled in.")
    dataset: DatasetReference = Field(description="The rows to learn on.")
    rewards: tuple[RewardTarget, ...] = Field(description="In the order of the job's rewards; none for sft.")
    preflight: PreflightMode = Field(
        default="off",
        description="TrainingJobSpec.preflight; a gateway that does not know it asks for none.",
    )
    eval_dataset: DatasetReference | None = Field(
        default=None,
        validate_default=True,
        description="The rows of evaluations; null where hyperparameters.eval_dataset_id is.",
    )
    init_checkpoints: tuple[InitCheckpoint, ...] = Field(
        default=(),
        description=(
            "What the run starts from, each put onto what the ones before it made of the base model. Empty: "
            "the base model."
        ),
    )

    @field_validator("hyperparameters", mode="wrap")
    @classmethod
    def _hyperparameters_of_method(cls, value: object, _: object, info: ValidationInfo) -> Hyperparameters:
        return check_hyperparameters(value, info)

    @field_validator("rewards")
    @classmethod
    def _rewards_of_method(
        cls, rewards: tuple[RewardTarget, ...], info: ValidationInfo
    ) -> tuple[RewardTarget, ...]:
        check_rewards_of_method(rewards, info)
        return rewards

    @field_validator("eval_dataset")
    @classmethod
    def _is_there_where_it_is_asked_for(
        cls, reference: DatasetReference | None, info: ValidationInfo
    ) -> DatasetReference | None:
        h = info.data.get("hyperparameters")
        is_asked_for = isinstance(h, GrpoHyperparameters) and h.eval_dataset_id is not None
        if h is not None and is_asked_for != (reference is not None):
            raise ValueError(
                "hyperparameters.eval_dataset_id names a dataset, whose file is to stand here"
                if is_asked_for
                else "hyperparameters.eval_dataset_id names no dataset, so that none is to stand here"
            )
        return reference
