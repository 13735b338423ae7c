"""Parquet: a table with types, which JSON has for nearly all of them.

Files of strangers are read in a process of their own: damaged ones make Arrow end the process that does it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from threading import Event
from typing import IO

from gateway.datasets.bounds import DEFAULT_MAX_UNPACKED_BYTES, Unpacked
from gateway.datasets.faults import RowFault, WrongRowError
from gateway.datasets.formats._parquet_process import ReaderEndedError, parquet_lines
from gateway.datasets.json_values import parse_json
from gateway.datasets.rows import MAX_ROW_BYTES, Row, row_of
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
from plaudit.errors import ResourceExhaustedError
from plaudit.types.validation import shown


def read_parquet(
    file: IO[bytes], max_bytes: int = DEFAULT_MAX_UNPACKED_BYTES, abandoned: Event | None = None
) -> Iterator[Row | RowFault]:
    """Yields the rows of a Parquet file that has a descriptor, a few at a time.

    What they take is counted as they are unpacked, since what the file says of itself is not to be trusted,
    and what its pages take before they are. Raises ResourceExhaustedError (UPLOAD_TOO_LARGE) beyond
    `max_bytes`, and where a page is too large; AbandonedError once `abandoned` is set.

    Times become text (ISO 8601), decimals numbers where a number holds them exactly and else text, NaN null,
    since data frames write a missing number so. Bytes and infinities are refused.
    """
    number = 0
    unpacked = Unpacked(max_bytes)
    try:
        with closing(parquet_lines(file, abandoned or Event())) as lines:
            for line in lines:
                kind, text = line[:1], line[1:]
                if kind in (ROW, WRONG_ROW, LARGE_ROW):
                    number += 1
                    yield _row(kind, text, number)
                elif kind == BATCH:
                    unpacked.add(*json.loads(text))
                elif kind == TOO_LARGE:
                    raise ResourceExhaustedError(json.loads(text), reason="UPLOAD_TOO_LARGE")
                elif kind == DOUBLED_COLUMN:
                    yield RowFault(
                        "row 1",
                        f"the column {shown(json.loads(text))} stands twice in the file; rename one of the "
                        "two",
                    )
                elif kind == UNREADABLE:
                    yield RowFault(
                        f"row {number + 1}",
                        f"the file cannot be read as Parquet ({json.loads(text)}); what follows was not read",
                    )
                elif kind != END:
                    raise ReaderEndedError("the file is damaged: its reader writes what is no row")
    except ReaderEndedError as error:
        yield RowFault(
            f"row {number + 1}",
            f"{error}; write it anew, e.g. with pandas or pyarrow",
        )


def _row(kind: bytes, text: bytes, number: int) -> Row | RowFault:
    place = f"row {number}"
    if kind == LARGE_ROW:
        return RowFault(place, f"the row is longer than {MAX_ROW_BYTES:,} bytes; split it or shorten it")
    if kind == WRONG_ROW:
        return RowFault(place, json.loads(text))
    try:
        return row_of(parse_json(text))
    except WrongRowError as fault:
        return RowFault(place, fault.message)
