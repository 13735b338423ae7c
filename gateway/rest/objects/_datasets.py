"""Datasets, their sources and rows."""

from __future__ import annotations

from typing import Any, Literal

from gateway.rest.objects._base import Listed, ListedByToken, RestObject, Time


class DatasetObject(RestObject):
    """A dataset; `columns` are those besides the prompt."""

    id: str
    object: Literal["dataset"] = "dataset"
    name: str
    source_type: str
    source_uri: str | None
    huggingface_dataset: str | None
    num_rows: int
    columns: list[str]
    methods: list[str]
    size_bytes: int
    sha256: str
    created_at: Time


class TriedSourceObject(RestObject):
    """What the first rows of a source are like; `error` says why it cannot be connected."""

    object: Literal["dataset_validation"] = "dataset_validation"
    valid: bool
    num_rows: int | None
    columns: list[str]
    error: str | None


class TokenStatisticsObject(RestObject):
    """Tokens of a dataset's prompts as a model reads them, chat template included.

    Of the `above_limit_count` prompts above `max_prompt_length`, which a job would shorten, `too_long_count`
    stay above it however much is cut; `first_too_long_row` counts from 0.
    """

    object: Literal["token_statistics"] = "token_statistics"
    dataset_id: str
    model: str
    model_revision: str
    count: int
    min: int
    median: float
    p95: int
    max: int
    max_prompt_length: int
    above_limit_count: int
    too_long_count: int
    first_too_long_row: int | None


class DatasetList(Listed[DatasetObject]):
    """A page of datasets, newest first; `after=<last id>` asks for the next."""


class DatasetRowObject(RestObject):
    """A row of a dataset as jobs read it; `prompt` is text or a list of chat turns."""

    object: Literal["dataset_row"] = "dataset_row"
    row_number: int
    prompt: str | list[dict[str, str]]
    columns: dict[str, Any]


class DatasetRowList(ListedByToken[DatasetRowObject]):
    """A page of rows, in their order; `page_token=<next_page_token>` asks for the next."""
