"""Datasets and their sources."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any


@dataclass(frozen=True, slots=True)
class Dataset:
    """A dataset: `columns` are those besides the prompt, `methods` what its rows can be trained by."""

    id: str
    name: str
    source_type: str
    row_count: int
    columns: tuple[str, ...]
    methods: tuple[str, ...]
    size_bytes: int
    sha256: str
    created_at: datetime | None
    source_uri: str = ""
    """What it was connected to, "" for an upload."""


@dataclass(frozen=True, slots=True)
class DatasetRow:
    """A row as jobs read it: `number` counts from 0, `prompt` is text or chat turns, `columns` the others."""

    number: int
    prompt: Any
    columns: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class TriedSource:
    """What the first rows of a source are like. `error` is "" where it can be connected; `row_count` None
    where the source does not tell it.
    """

    error: str
    row_count: int | None
    columns: tuple[str, ...]
