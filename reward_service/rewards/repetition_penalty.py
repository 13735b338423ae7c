"""repetition_penalty: saying the same again costs. docs/rewards/repetition_penalty.md describes it."""

from __future__ import annotations

import unicodedata
from itertools import islice
from typing import Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator

from plaudit.types.scoring import Scored
from reward_service._item import Item
from reward_service._reward import Answer, reward
from reward_service.rewards._beside import beside_the_loop

_MAX_CHARACTERS: Final = 100_000
_NGRAMS_AT_ONCE: Final = 1_000


class RepetitionPenaltyConfig(BaseModel):
    """What counts as said again, and from when on it costs."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    unit: Literal["words", "characters"] = Field(
        default="words",
        description='What n-grams are made of; "characters" for languages without spaces.',
        examples=["words"],
    )
    ngram_size: int = Field(
        default=3, ge=1, le=64, description="Words or characters in a row that are one n-gram.", examples=[3]
    )
    allowed_share: float = Field(
        default=0.0,
        ge=0.0,
        lt=1.0,
        allow_inf_nan=False,
        description="Share of n-grams that may repeat earlier ones at no cost.",
        examples=[0.1],
    )
    full_share: float = Field(
        default=1.0,
        gt=0.0,
        le=1.0,
        allow_inf_nan=False,
        description="Share of repeated n-grams from which on the reward is -1.",
        examples=[0.8],
    )

    @field_validator("full_share")
    @classmethod
    def _is_above_allowed_share(cls, full_share: float, info: ValidationInfo) -> float:
        allowed = info.data.get("allowed_share")
        if allowed is not None and full_share <= allowed:
            raise ValueError(f"must be above allowed_share, which is {allowed:g}")
        return full_share


@reward(
    description="0 where no n-gram comes again, falling linearly to -1 with the share that does.",
    min_value=-1.0,
    max_value=0.0,
    config=RepetitionPenaltyConfig,
)
async def repetition_penalty(items: list[Item[RepetitionPenaltyConfig]]) -> list[Answer]:
    """The penalty of each completion."""
    return await beside_the_loop(items, lambda item: penalty(item.text, item.config))


def penalty(text: str, config: RepetitionPenaltyConfig) -> Scored:
    """The penalty of a text, of which at most the last 100,000 characters are read."""
    text = text[-_MAX_CHARACTERS:].casefold()
    share = repeated_share(words_of(text) if config.unit == "words" else list(text), config.ngram_size)
    over = (share - config.allowed_share) / (config.full_share - config.allowed_share)
    return Scored(min(0.0, max(-1.0, -over)), metrics={"repeated_share": share})


def words_of(text: str) -> list[str]:
    """Runs of letters, digits and _, and each other mark by itself, so that "!!!!" is four words."""
    marks = {
        ord(mark): f" {mark} "
        for mark in set(text)
        if not (mark.isalnum() or mark == "_" or unicodedata.category(mark).startswith("M"))
    }
    return text.translate(marks).split()


def repeated_share(units: list[str], ngram_size: int) -> float:
    """Share of the n-grams of `units` that came before; 0 where there is none.

    Hashed, so that the time is linear in the text, whatever it repeats.
    """
    count = len(units) - ngram_size + 1
    if count < 1:
        return 0.0
    ngrams = zip(*(islice(units, start, None) for start in range(ngram_size)), strict=False)
    different: set[tuple[str, ...]] = set()
    for _ in range(0, count, _NGRAMS_AT_ONCE):
        # One large set() would let no other thread run.
        different.update(islice(ngrams, _NGRAMS_AT_ONCE))
    return 1.0 - len(different) / count
