"""How long a dataset's prompts are for a model: the words of trainer, gateway, SDK and command line."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TokenStatistics:
    """Tokens of a dataset's prompts as a model reads them, chat template included.

    95 % of the prompts have at most `p95` tokens. Of the `above_limit_count` prompts above
    `max_prompt_length`, which a job would shorten, `too_long_count` stay above it however much is cut,
    because of their template and other turns: a job would be refused. `first_too_long_row` is the first of
    those, counted from 0, None where there is none. `model_revision` is the hub's commit of what counted, or
    a digest of a folder's files.
    """

    count: int
    min: int
    median: float
    p95: int
    max: int
    above_limit_count: int
    too_long_count: int
    first_too_long_row: int | None
    max_prompt_length: int
    model_revision: str
