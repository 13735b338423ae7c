"""The training methods: which hyperparameters each has, and whether it is taught by rewards."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Final, Literal, TypeAlias

from pydantic import ValidationInfo
from pydantic_core import PydanticCustomError

from plaudit.types.hyperparameters import GrpoHyperparameters
from plaudit.types.sft_hyperparameters import SftHyperparameters

Method: TypeAlias = Literal["grpo", "sft"]
"""How a model is trained: by rewards on what it writes, or by answers that it imitates."""

Hyperparameters: TypeAlias = GrpoHyperparameters | SftHyperparameters
"""Settings of a job's method."""

HYPERPARAMETERS: Final[Mapping[str, type[Hyperparameters]]] = {
    "grpo": GrpoHyperparameters,
    "sft": SftHyperparameters,
}

NO_REWARDS: Final = "rewards_of_no_use"
"""Type of the error for rewards of a method that asks none."""


def hyperparameters_of(method: object) -> type[Hyperparameters]:
    """The model of a method's hyperparameters; grpo's for what is no method, which is refused by itself."""
    return HYPERPARAMETERS.get(str(method), GrpoHyperparameters)


def check_hyperparameters(value: object, info: ValidationInfo) -> Hyperparameters:
    """Validates hyperparameters by the model of the method that was validated before them."""
    model = hyperparameters_of(info.data.get("method"))
    if isinstance(value, model):
        return value
    # As JSON, in which a list is a tuple, whatever brought the value here.
    return model.model_validate_json(json.dumps(value, default=repr))


def check_rewards_of_method(rewards: Sequence[object], info: ValidationInfo) -> None:
    """Refuses a method without rewards that needs them, and rewards of a method that asks none."""
    method = info.data.get("method")
    if method == "grpo" and not rewards:
        raise ValueError("grpo reinforces what rewards score, so that it needs at least one")
    if method == "sft" and rewards:
        raise PydanticCustomError(
            NO_REWARDS, "sft imitates the answers of the dataset and asks no rewards; leave them out"
        )


def other_method_with(name: str, method: object) -> str | None:
    """A method other than `method` that has a hyperparameter of this name, or None."""
    return next(
        (m for m, model in HYPERPARAMETERS.items() if m != method and name in model.model_fields), None
    )
