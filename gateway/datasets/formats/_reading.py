"""Which format a file has, and its rows."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from threading import Event
from typing import IO, Final

from gateway.datasets.bounds import DEFAULT_MAX_UNPACKED_BYTES
from gateway.datasets.faults import RowFault
from gateway.datasets.formats._csv import read_csv
from gateway.datasets.formats._json import read_json
from gateway.datasets.formats._jsonl import read_jsonl
from gateway.datasets.formats._parquet import read_parquet
from gateway.datasets.rows import Row

Reader = Callable[[IO[bytes]], Iterator[Row | RowFault]]

_TEXT_READERS: Final[Mapping[str, Reader]] = {
    "jsonl": read_jsonl,
    "json": read_json,
    "csv": read_csv,
}

FORMATS: Final = (*_TEXT_READERS, "parquet")
"""Names of the formats."""

_HEAD_BYTES: Final = 4096
_BOM: Final = b"\xef\xbb\xbf"
_FOREIGN_STARTS: Final = {
    b"\x1f\x8b": "the file is compressed by gzip; send it decompressed",
    b"PK\x03\x04": "the file is a zip archive (or a spreadsheet); send the file inside it, or save it as CSV",
    b"\xff\xfe": "the file is UTF-16; save it as UTF-8",
    b"\xfe\xff": "the file is UTF-16; save it as UTF-8",
}


def read_rows(
    file: IO[bytes],
    file_format: str,
    *,
    max_unpacked_bytes: int = DEFAULT_MAX_UNPACKED_BYTES,
    abandoned: Event | None = None,
) -> Generator[Row | RowFault]:
    """Yields what a file holds, in bounded memory. Whatever its bytes are, it yields rows and faults.

    `file_format` is one of FORMATS, or "": then JSONL, a JSON list and Parquet are told by how the file
    begins. CSV is not: any line of text could be its head. Parquet is read by a process, and has to be a file
    with a descriptor. Raises ResourceExhaustedError (UPLOAD_TOO_LARGE) where the rows take more than
    `max_unpacked_bytes` in memory, all together; AbandonedError where that process goes on for nobody, once
    `abandoned` is set.
    """
    head = file.read(_HEAD_BYTES)
    file.seek(0)
    foreign = next((why for start, why in _FOREIGN_STARTS.items() if head.startswith(start)), None)
    if foreign is not None:
        yield RowFault("line 1", foreign)
        return
    file_format = file_format or _format_of(head)
    if file_format == "parquet":
        yield from read_parquet(file, max_unpacked_bytes, abandoned)
    else:
        # Of these nothing is unpacked; what their rows become is counted where it is written.
        yield from _TEXT_READERS[file_format](file)


def _format_of(head: bytes) -> str:
    if head.startswith(b"PAR1"):
        return "parquet"
    return "json" if head.removeprefix(_BOM).lstrip().startswith(b"[") else "jsonl"
