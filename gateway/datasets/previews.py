"""Rows of a stored dataset, a page at a time."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow.parquet as pq

_PAGE_CHARACTERS: Final = 1_000_000
"""A page ends behind the row that goes beyond this, so that it fits a message and a screen."""
_BATCH_ROWS: Final = 100


@dataclass(frozen=True, slots=True)
class RowPreview:
    """A row as jobs read it: `number` counts from 0, `prompt` is text or chat turns, `columns` the others."""

    number: int
    prompt: Any
    columns: dict[str, Any]


def read_page(path: Path, start: int, size: int) -> list[RowPreview]:
    """At most `size` rows from number `start` on, in order; none behind the end."""
    found: list[RowPreview] = []
    characters = 0
    with pq.ParquetFile(path) as table:
        groups = []
        first = 0
        for index in range(table.metadata.num_row_groups):
            rows = table.metadata.row_group(index).num_rows
            if first + rows > start and first < start + size:
                groups.append((index, first))
            first += rows
        if not groups:
            return []
        number = groups[0][1]
        for batch in table.iter_batches(batch_size=_BATCH_ROWS, row_groups=[index for index, _ in groups]):
            prompts, columns = batch.column("prompt"), batch.column("columns")
            for offset in range(batch.num_rows):
                if number + offset < start:
                    continue
                prompt, others = prompts[offset].as_py(), columns[offset].as_py()
                found.append(RowPreview(number + offset, json.loads(prompt), json.loads(others)))
                characters += len(prompt) + len(others)
                if len(found) == size or characters > _PAGE_CHARACTERS:
                    return found
            number += batch.num_rows
    return found
