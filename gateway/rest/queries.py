"""Query parameters; one that a route does not have is refused, not passed over. Bounds are the domain's."""

from __future__ import annotations

import re
from collections import Counter
from typing import Annotated, Final, Literal

from fastapi import Request
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationInfo, field_validator

from plaudit.errors import FieldViolation, InvalidArgumentError
from plaudit.types.statuses import JobStatus


def _parts(value: object) -> object:
    """`a,b` and repeated parameters alike: a list of what stands between commas."""
    texts = value if isinstance(value, list) else [value]
    return [part for text in texts for part in str(text).split(",") if part]


Names = Annotated[list[str], BeforeValidator(_parts)]
Statuses = Annotated[list[JobStatus], BeforeValidator(_parts)]
Limit = Annotated[int, Field(description="Most entries to return. Above 500: 500.")]


_WHOLE_NUMBER: Final = re.compile(r"-?[0-9]+", re.ASCII)
_LISTS: Final = frozenset({"status", "keys", "kinds"})
"""Parameters that may stand more than once."""


async def refuse_doubled(request: Request) -> None:
    """Raises InvalidArgumentError where a parameter stands twice: one of the two would be passed over."""
    names = Counter(name for name, _ in request.query_params.multi_items())
    doubled = [name for name, count in names.items() if count > 1 and name not in _LISTS]
    if doubled:
        raise InvalidArgumentError(
            [
                FieldViolation(name or "(request)", f"stands {names[name]} times; send it once")
                for name in doubled
            ]
        )


class NoQuery(BaseModel):
    """A route without parameters."""

    model_config = ConfigDict(extra="forbid")

    @field_validator("*", mode="before")
    @classmethod
    def _whole_numbers_in_digits(cls, value: object, info: ValidationInfo) -> object:
        is_number = cls.model_fields[str(info.field_name)].annotation in (int, int | None)
        if is_number and isinstance(value, str) and not _WHOLE_NUMBER.fullmatch(value):
            raise ValueError("it is a whole number, written in digits")
        return value


class ListQuery(NoQuery):
    """A page of a list."""

    limit: Limit = 20
    after: str = Field(default="", description="Id of the last entry of the page before.")


class JobsQuery(ListQuery):
    """A page of jobs."""

    status: Statuses = Field(default=[], description="Only these, separated by commas. Empty: all.")
    method: Literal["grpo", "sft", "sft_text"] | None = Field(default=None, description="Only these.")


class CreateJobQuery(NoQuery):
    """How to create a job."""

    validate_only: bool = Field(default=False, description="Only check the request; nothing is queued.")


class MetricsQuery(NoQuery):
    """Which part of a job's metrics."""

    keys: Names = Field(default=[], description="Names of metrics, separated by commas. Empty: all.")
    from_step: int = Field(default=0, description="First step. 0: from the start.")
    to_step: int | None = Field(
        default=None,
        description="Last step; 0 leaves the evaluation before the first step. Not given: to the end.",
    )
    max_points: int = Field(default=0, description="Most points per key. 0: 500. At most 5000.")


class EventsQuery(NoQuery):
    """A page of a job's events."""

    limit: Limit = 50
    after: str = Field(default="", description="Id of the last event of the page before.")


class CompletionsQuery(NoQuery):
    """A page of completions."""

    step: int | None = Field(
        default=None,
        description=(
            "Only this step. 0: of evaluations that before the first step. Not given: all, newest first."
        ),
    )
    evaluations: bool = Field(
        default=False, description="Those of evaluations, instead of those that were learnt from."
    )
    limit: Limit = 50
    page_token: str = Field(default="", description="next_page_token of the page before.")


class TokensQuery(NoQuery):
    """Whose tokens are counted, and against which limit."""

    model: str = Field(description='Model, named as in a job; for example "builtin:tiny".')
    max_prompt_length: int = Field(
        default=0, ge=0, le=10_000_000, description="Tokens above which a job would shorten. 0: its default."
    )


class RowsQuery(NoQuery):
    """A page of rows."""

    limit: Limit = 20
    page_token: str = Field(default="", description="next_page_token of the page before.")


class PageQuery(NoQuery):
    """A page of a list that is continued by a token."""

    limit: Limit = 50
    page_token: str = Field(default="", description="next_page_token of the page before.")


class ModelsQuery(ListQuery):
    """A page of models."""

    training_job_id: str = Field(default="", description="Only models of this job. Empty: all.")


class ArtifactQuery(NoQuery):
    """Which files of a checkpoint."""

    artifact: Literal["weights", "resumable", "adapter"] = Field(
        default="weights",
        description="weights: what from_pretrained loads; resumable: all; adapter: those of adapters.",
    )


class LinkQuery(NoQuery):
    """What shows that a URL was given out."""

    expires: int = Field(description="Until when it is good, in seconds since 1970.")
    signature: str = Field(description="Of address and time.")


class WatchQuery(NoQuery):
    """What to stream, and from where on."""

    after_cursor: str = Field(
        default="", description="Deliver events after this one; the Last-Event-ID header wins."
    )
    kinds: Names = Field(default=[], description="Only these kinds, separated by commas. Empty: all.")
