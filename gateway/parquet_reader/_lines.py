"""What the program writes: a line for each thing that it finds, whose first byte says what it is."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import IO, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from gateway.parquet_reader._faults import TooLargeError, WrongValueError
from gateway.parquet_reader._pages import MAX_OPEN_PAGES_BYTES, PageSizes
from gateway.parquet_reader._values import json_value
from gateway.parquet_reader.protocol import (
    BATCH,
    DOUBLED_COLUMN,
    END,
    LARGE_ROW,
    ROW,
    TOO_LARGE,
    UNREADABLE,
    WRONG_ROW,
)

_BATCH_ROWS: Final = 16
"""Rows that are unpacked together: a file of a few kB can name one text of 4 MiB over and over."""
_ARROW_PER_JSON: Final = 8
"""Bytes of a row as Arrow has it for one of its JSON: a number takes 8 there, and as little as one digit."""
_FREE_BYTES: Final = 1024
"""By which the JSON of a row may be longer than what is made of it."""
_REASON_CHARACTERS: Final = 200


def blocks(file: IO[bytes], max_row_bytes: int) -> Iterator[bytes]:
    """Reads a Parquet file; yields whole lines, those of a few rows at a time.

    Whatever the file holds, the last line says how it ended. The rows of a batch follow its line. A row is
    told as too large, unseen, where it must be longer than `max_row_bytes` as JSON. Blocks.
    """
    try:
        table = pq.ParquetFile(file)
        names = table.schema_arrow.names
        doubled = next((name for name in names if names.count(name) > 1), None)
        if doubled is not None:
            yield _line(DOUBLED_COLUMN, doubled)
            return
        for batch in _batches(table, PageSizes(file, table.metadata)):
            yield _line(BATCH, [batch.num_rows, batch.nbytes])
            rows = _rows(batch, _ARROW_PER_JSON * max_row_bytes)
            yield b"".join(_row_line(row, max_row_bytes + _FREE_BYTES) for row in rows)
    except TooLargeError as error:
        yield _line(TOO_LARGE, str(error))
    except MemoryError:
        # Arrow's own is Python's too.
        yield _line(
            TOO_LARGE,
            "a part of the file takes more memory than its reader may have; write it with smaller pages "
            "(data_page_size, dictionary_pagesize_limit) or smaller row groups",
        )
    except Exception as error:
        # Arrow tells a damaged file by errors of many classes.
        told = str(error).strip()
        yield _line(UNREADABLE, (told.splitlines()[0] if told else type(error).__name__)[:_REASON_CHARACTERS])
    else:
        yield _line(END, None)


def _batches(table: Any, sizes: PageSizes) -> Iterator[Any]:
    for group in range(table.metadata.num_row_groups):
        dictionaries = sizes.of(group).dictionaries
        # Every row can name the largest text of a dictionary.
        rows = min(_BATCH_ROWS, max(1, MAX_OPEN_PAGES_BYTES // max(1, dictionaries)))
        # A batch without rows is no step forward for whoever waits for one.
        yield from (b for b in table.iter_batches(batch_size=rows, row_groups=[group]) if b.num_rows)


def _rows(batch: Any, largest_bytes: int) -> Iterator[dict[str, Any] | None]:
    """The rows of a batch; None for one that is so large that it is not even looked at."""
    if batch.nbytes <= largest_bytes:
        yield from batch.to_pylist()
        return
    for index in range(batch.num_rows):
        row = batch.slice(index, 1)
        columns = (c.dictionary_decode() if pa.types.is_dictionary(c.type) else c for c in row.columns)
        is_large = sum(column.nbytes for column in columns) > largest_bytes
        yield None if is_large else row.to_pylist()[0]


def _row_line(row: dict[str, Any] | None, largest_bytes: int) -> bytes:
    if row is None:
        return _line(LARGE_ROW, None)
    try:
        line = _line(ROW, json_value(row))
    except WrongValueError as fault:
        return _line(WRONG_ROW, str(fault))
    return line if len(line) <= largest_bytes else _line(LARGE_ROW, None)


def _line(kind: bytes, value: Any) -> bytes:
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return kind + text.encode("utf-8", "surrogatepass") + b"\n"
