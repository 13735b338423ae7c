"""length_penalty: long completions cost. docs/rewards/length_penalty.md describes it."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator

from plaudit.types.scoring import Failed, FailureCode
from reward_service._item import Item
from reward_service._reward import Answer, reward


class LengthPenaltyConfig(BaseModel):
    """Where the penalty begins, and where it is whole."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    soft_limit: int = Field(ge=0, le=10_000_000, description="Tokens that cost nothing.", examples=[1024])
    hard_limit: int = Field(
        ge=1, le=10_000_000, description="Tokens from which on the reward is -1.", examples=[2048]
    )

    @field_validator("hard_limit")
    @classmethod
    def _is_above_soft_limit(cls, hard_limit: int, info: ValidationInfo) -> int:
        soft_limit = info.data.get("soft_limit")
        if soft_limit is not None and hard_limit <= soft_limit:
            raise ValueError(f"must be above soft_limit, which is {soft_limit}")
        return hard_limit


@reward(
    description="0 up to a soft limit of tokens, falling linearly to -1 at a hard one.",
    min_value=-1.0,
    max_value=0.0,
    config=LengthPenaltyConfig,
)
async def length_penalty(items: list[Item[LengthPenaltyConfig]]) -> list[Answer]:
    """The penalty of each completion, by its number of tokens."""
    return [penalty(item) for item in items]


def penalty(item: Item[LengthPenaltyConfig]) -> Answer:
    """The penalty of one completion."""
    tokens = item.completion.token_count
    if tokens == 0 and item.text:
        return Failed(
            FailureCode.INVALID,
            "token_count is 0, but the completion has text; send its length in the policy's tokens",
        )
    soft, hard = item.config.soft_limit, item.config.hard_limit
    if tokens <= soft:
        return 0.0
    return -min(1.0, (tokens - soft) / (hard - soft))
