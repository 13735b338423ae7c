"""Hyperparameters of `method: sft`, beside those that every method has (`training_hyperparameters.py`)."""

from __future__ import annotations

from pydantic import Field

from plaudit.types.training_hyperparameters import TokenCount, TrainingHyperparameters


class SftHyperparameters(TrainingHyperparameters):
    """Settings of supervised fine-tuning: the model learns to write the answers of the dataset."""

    learning_rate: float = Field(
        default=1e-5, gt=0.0, le=1.0, allow_inf_nan=False, description="AdamW step size.", examples=[1e-5]
    )
    max_length: TokenCount = Field(
        default=2048,
        description=(
            "Tokens of an example, prompt included; a longer one is cut at its end, or left out where "
            "nothing to learn would remain. Both are counted."
        ),
        examples=[2048],
    )
