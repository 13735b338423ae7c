"""What the pages of a Parquet file say that they unpack to, read before anything unpacks them.

A page is unpacked as a whole, whatever is asked of it, and a few hundred kB can stand for 2 GB. The size that
counts is in the page's own header (PageHeader of https://github.com/apache/parquet-format, in Thrift's
compact protocol), as pyarrow tells only what the footer says of a column, which need not be true.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import IO, Any, Final

from gateway.parquet_reader._faults import TooLargeError

MAX_OPEN_PAGES_BYTES: Final = 512 * 1000**2
"""Most that the largest pages of all columns of a row group, which are open at once, may take unpacked."""
MAX_PAGES: Final = 1_000_000
"""Most pages of a file; each takes some 10 µs to look at."""

_HEADER_BYTES: Final = 4 * 1024
_MAX_HEADER_BYTES: Final = 16 * 1024 * 1024
_MAX_DEPTH: Final = 16
_SHOWN_CHARACTERS: Final = 80
_DICTIONARY_PAGE: Final = 2

_STOP, _TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY = 0, 1, 2, 3, 7, 8
_INTEGERS: Final = frozenset({4, 5, 6})
_LISTS: Final = frozenset({9, 10})
_STRUCT: Final = 12


@dataclass(frozen=True, slots=True)
class OpenPages:
    """Of a row group: bytes of its columns' dictionaries, and of these with each column's largest page."""

    dictionaries: int
    all: int


class PageSizes:
    """Reads the headers of pages, one row group after another."""

    def __init__(self, file: IO[bytes], metadata: Any) -> None:
        self._file = file
        self._metadata = metadata
        self._pages = 0

    def of(self, group: int) -> OpenPages:
        """What the row group takes while it is read.

        Raises TooLargeError beyond the limits, and ValueError where it is no Parquet. Blocks, and moves the
        file's position.
        """
        dictionaries = pages = 0
        row_group = self._metadata.row_group(group)
        for number in range(row_group.num_columns):
            column = row_group.column(number)
            dictionary, page = self._largest(column)
            dictionaries += dictionary
            pages += page
            if dictionaries + pages > MAX_OPEN_PAGES_BYTES:
                raise TooLargeError(
                    f"pages of row group {group + 1} of the file take {dictionaries + pages:,} bytes "
                    f"unpacked up to column {_shown(column.path_in_schema)}, and {MAX_OPEN_PAGES_BYTES:,} is "
                    "the most that is unpacked at once; write it with smaller pages (data_page_size, "
                    "dictionary_pagesize_limit) or smaller row groups"
                )
        return OpenPages(dictionaries, dictionaries + pages)

    def _largest(self, column: Any) -> tuple[int, int]:
        """Bytes of a column's dictionary and of its largest page."""
        place = column.data_page_offset
        if (
            column.has_dictionary_page
            and column.dictionary_page_offset
            and place > column.dictionary_page_offset
        ):
            place = column.dictionary_page_offset
        end = place + column.total_compressed_size
        dictionary = largest = 0
        while place < end:
            self._pages += 1
            if self._pages > MAX_PAGES:
                raise TooLargeError(
                    f"the file has more than {MAX_PAGES:,} pages; write it with larger ones (data_page_size)"
                )
            header = self._header(place)
            if header.kind == _DICTIONARY_PAGE:
                dictionary += header.unpacked
            else:
                largest = max(largest, header.unpacked)
            place += header.length + header.packed
        return dictionary, largest

    def _header(self, place: int) -> _Header:
        size = _HEADER_BYTES
        while True:
            self._file.seek(place)
            data = self._file.read(size)
            try:
                return _read_header(data)
            except IndexError:
                if len(data) < size or size >= _MAX_HEADER_BYTES:
                    raise ValueError(f"there is no whole page header at byte {place}") from None
                size *= 8


def _shown(name: str) -> str:
    text = json.dumps(name, ensure_ascii=False)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"


@dataclass(frozen=True, slots=True)
class _Header:
    kind: int
    unpacked: int
    packed: int
    length: int


def _read_header(data: bytes) -> _Header:
    """Raises IndexError where `data` ends before the header does, and ValueError where it is none."""
    reader = _Compact(data)
    found: dict[int, int] = {}
    field = 0
    while (step := reader.field(field)) is not None:
        field, kind = step
        if field in (1, 2, 3) and kind in _INTEGERS:
            found[field] = reader.integer()
        else:
            reader.skip(kind, 0)
    if found.keys() != {1, 2, 3} or found[2] < 0 or found[3] < 0:
        raise ValueError("a page header lacks its sizes")
    return _Header(found[1], found[2], found[3], reader.place)


class _Compact:
    """Thrift's compact protocol, as far as headers of pages need it."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.place = 0

    def field(self, before: int) -> tuple[int, int] | None:
        """Number and type of the next field of a struct, after the field `before`; None at its end."""
        head = self._byte()
        kind = head & 0x0F
        if kind == _STOP:
            return None
        step = head >> 4
        return (before + step if step else self.integer()), kind

    def integer(self) -> int:
        value = self._varint()
        return (value >> 1) ^ -(value & 1)

    def skip(self, kind: int, depth: int) -> None:
        """Passes over the value of a field."""
        if depth > _MAX_DEPTH:
            raise ValueError("a page header nests too deeply")
        if kind in (_TRUE, _FALSE):
            return
        if kind in _INTEGERS:
            self._varint()
        elif kind == _BYTE:
            self._forward(1)
        elif kind == _DOUBLE:
            self._forward(8)
        elif kind == _BINARY:
            self._forward(self._varint())
        elif kind in _LISTS:
            self._skip_list(depth)
        elif kind == _STRUCT:
            field = 0
            while (step := self.field(field)) is not None:
                field, inner = step
                self.skip(inner, depth + 1)
        else:
            raise ValueError(f"a page header holds a field of type {kind}")

    def _skip_list(self, depth: int) -> None:
        head = self._byte()
        kind, count = head & 0x0F, head >> 4
        for _ in range(self._varint() if count == 15 else count):
            # Truth values are a byte each here, and part of the head elsewhere.
            self.skip(_BYTE if kind in (_TRUE, _FALSE) else kind, depth + 1)

    def _varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._byte()
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value
            if shift > 63:
                raise ValueError("a page header holds a number that is too long")

    def _byte(self) -> int:
        byte = self._data[self.place]
        self.place += 1
        return byte

    def _forward(self, count: int) -> None:
        self.place += count
        if self.place > len(self._data):
            raise IndexError
