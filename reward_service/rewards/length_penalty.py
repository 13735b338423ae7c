"""length_penalty: long completions cost. docs/rewards/length_penalty.md describes it."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator

from plaudit.types.scoring import Failed, FailureCode
from reward_service._item import Item
from reward_service._reward import Answer, reward


class LengthPenaltyConfig(BaseModel):
    """Where the penalty begins, and where it is whole."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    unit: Literal["tokens", "characters"] = Field(
        default="tokens", description="What the limits count.", examples=["tokens"]
    )
    soft_limit: int = Field(ge=0, le=10_000_000, description="Length that costs nothing.", examples=[1024])
    hard_limit: int = Field(
        ge=1, le=10_000_000, description="Length from which on the reward is -1.", examples=[2048]
    )

    @field_validator("hard_limit")
    @classmethod
    def _is_above_soft_limit(cls, hard_limit: int, info: ValidationInfo) -> int:
        soft_limit = info.data.get("soft_limit")
        if soft_limit is not None and hard_limit <= soft_limit:
            raise ValueError(f"must be above soft_limit, which is {soft_limit}")
        return hard_limit


@reward(
    description="0 up to a soft limit of length, falling linearly to -1 at a hard one.",
    min_value=-1.0,
    max_value=0.0,
    config=LengthPenaltyConfig,
)
async def length_penalty(items: list[Item[LengthPenaltyConfig]]) -> list[Answer]:
    """The penalty of each completion, by its length."""
    return [penalty(item) for item in items]


def penalty(item: Item[LengthPenaltyConfig]) -> Answer:
    """The penalty of one completion."""
    config = item.config
    length = item.completion.token_count if config.unit == "tokens" else len(item.text)
    if length == 0 and item.text:
        return Failed(
            FailureCode.INVALID,
            "token_count is 0, but the completion has text; send its length in the policy's tokens, or count "
            "characters",
        )
    if length <= config.soft_limit:
        return 0.0
    return -min(1.0, (length - config.soft_limit) / (config.hard_limit - config.soft_limit))
