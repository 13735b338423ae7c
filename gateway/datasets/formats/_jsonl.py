"""JSONL: a JSON object a line."""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO, Final

from gateway.datasets.faults import RowFault, WrongRowError
from gateway.datasets.formats._lines import bounded_lines
from gateway.datasets.json_values import parse_json
from gateway.datasets.rows import MAX_ROW_BYTES, Row, row_of

_BOM: Final = b"\xef\xbb\xbf"
_PARQUET: Final = "the file is Parquet; say so by the format, parquet"


def read_jsonl(file: IO[bytes]) -> Iterator[Row | RowFault]:
    """Yields what each line of `file` holds; blank lines hold nothing, and are counted.

    At most one line, of MAX_ROW_BYTES, is in memory at a time.
    """
    for number, line in enumerate(bounded_lines(file), start=1):
        place = f"line {number}"
        if number == 1:
            if line.startswith(b"PAR1"):
                yield RowFault(place, _PARQUET)
                return
            line = line.removeprefix(_BOM)
        if len(line) > MAX_ROW_BYTES:
            yield RowFault(place, f"the row is longer than {MAX_ROW_BYTES:,} bytes; split it or shorten it")
        elif line.strip():
            try:
                yield row_of(parse_json(line))
            except WrongRowError as fault:
                yield RowFault(place, fault.message)
