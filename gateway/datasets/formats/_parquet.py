"""Parquet: a table with types, which JSON has for nearly all of them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import IO, Any, Final
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq

from gateway.datasets.bounds import DEFAULT_MAX_UNPACKED_BYTES, Unpacked
from gateway.datasets.faults import RowFault, WrongRowError
from gateway.datasets.formats._parquet_pages import MAX_OPEN_PAGES_BYTES, PageSizes
from gateway.datasets.rows import MAX_ROW_BYTES, Row, row_of
from plaudit.types.validation import MAX_DEPTH, TOO_DEEP, json_fault, nests_deeper, shown

_BATCH_ROWS: Final = 16
"""Rows that are unpacked together: a file of a few kB can name one text of 4 MiB over and over."""
_LARGEST_ROW_BYTES: Final = 8 * MAX_ROW_BYTES
"""Of a row as Arrow has it: a number takes 8 bytes there, and as little as one digit in JSON."""


def read_parquet(file: IO[bytes], max_bytes: int = DEFAULT_MAX_UNPACKED_BYTES) -> Iterator[Row | RowFault]:
    """Yields the rows of a Parquet file, a few at a time.

    What they take is counted as they are unpacked, since what the file says of itself is not to be trusted,
    and what its pages take before they are. Raises ResourceExhaustedError (UPLOAD_TOO_LARGE) beyond
    `max_bytes`, and where a page is too large.

    Times become text (ISO 8601), decimals numbers where a number holds them exactly and else text, NaN null,
    since data frames write a missing number so. Bytes and infinities are refused.
    """
    number = 0
    unpacked = Unpacked(max_bytes)
    try:
        table = pq.ParquetFile(file)
        names = table.schema_arrow.names
        doubled = next((name for name in names if names.count(name) > 1), None)
        if doubled is not None:
            yield RowFault(
                "row 1", f"the column {shown(doubled)} stands twice in the file; rename one of the two"
            )
            return
        for batch in _batches(table, PageSizes(file, table.metadata)):
            unpacked.add(batch.num_rows, batch.nbytes)
            for value in _values(batch):
                number += 1
                try:
                    yield row_of(_checked(value))
                except WrongRowError as fault:
                    yield RowFault(f"row {number}", fault.message)
    except (pa.ArrowException, OSError, ValueError, KeyError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        yield RowFault(
            f"row {number + 1}",
            f"the file cannot be read as Parquet ({reason[:200]}); what follows was not read",
        )


def _batches(table: Any, sizes: PageSizes) -> Iterator[Any]:
    for group in range(table.metadata.num_row_groups):
        dictionaries = sizes.of(group).dictionaries
        # Every row can name the largest text of a dictionary.
        rows = min(_BATCH_ROWS, max(1, MAX_OPEN_PAGES_BYTES // max(1, dictionaries)))
        yield from table.iter_batches(batch_size=rows, row_groups=[group])


def _values(batch: Any) -> Iterator[dict[str, Any] | None]:
    """The rows of a batch; None for one that is so large that it is not even looked at."""
    if batch.nbytes <= _LARGEST_ROW_BYTES:
        yield from batch.to_pylist()
        return
    for index in range(batch.num_rows):
        row = batch.slice(index, 1)
        columns = (c.dictionary_decode() if pa.types.is_dictionary(c.type) else c for c in row.columns)
        is_large = sum(column.nbytes for column in columns) > _LARGEST_ROW_BYTES
        yield None if is_large else row.to_pylist()[0]


def _checked(row: dict[str, Any] | None) -> dict[str, Any]:
    if row is None:
        raise WrongRowError(f"the row is longer than {MAX_ROW_BYTES:,} bytes; split it or shorten it")
    value: dict[str, Any] = _plain(row, 0)
    if nests_deeper(value, MAX_DEPTH):
        raise WrongRowError(f"the row {TOO_DEEP}")
    if (fault := json_fault(value)) is not None:
        raise WrongRowError(f"the row {fault}")
    return value


def _plain(value: Any, depth: int) -> Any:
    """The value as JSON has it."""
    if depth > MAX_DEPTH:
        raise WrongRowError(f"the row {TOO_DEEP}")
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            if math.isinf(value):
                raise WrongRowError(f"the row holds {value}, which JSON does not have; write null or text")
            return None if math.isnan(value) else value
        case Mapping():
            return {str(name): _plain(inner, depth + 1) for name, inner in value.items()}
        case list() | tuple():
            return [_plain(inner, depth + 1) for inner in value]
        case datetime() | date() | time():
            return value.isoformat()
        case timedelta():
            return value.total_seconds()
        case Decimal():
            return _number(value)
        case UUID():
            return str(value)
    raise WrongRowError(
        f"the row holds {type(value).__name__} values, which JSON does not have; turn them into text"
    )


def _number(value: Decimal) -> int | float | str:
    if not value.is_finite():
        raise WrongRowError(f"the row holds {value}, which JSON does not have; write null or text")
    if value == value.to_integral_value() and abs(value.adjusted()) < 400:
        return int(value)
    as_float = float(value)
    return as_float if Decimal(repr(as_float)) == value else str(value)
