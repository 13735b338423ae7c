"""CSV: a head with the names of the columns, then a row a line, or several where a quoted text has lines."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from typing import IO, Final

from gateway.datasets.faults import RowFault, WrongRowError
from gateway.datasets.formats._lines import bounded_lines
from gateway.datasets.json_values import not_utf8
from gateway.datasets.rows import MAX_ROW_BYTES, Row, row_of
from gateway.datasets.shapes import TELLING_COLUMNS
from plaudit.types.validation import shown

_BOM: Final = b"\xef\xbb\xbf"
_DELIMITERS: Final = (",", ";", "\t")

# Of the process, as the module has no other; a line is bounded by us, a quoted text over lines by this.
csv.field_size_limit(MAX_ROW_BYTES)


def read_csv(file: IO[bytes]) -> Iterator[Row | RowFault]:
    """Yields the rows of a table in UTF-8, separated by commas, semicolons or tabs. Every value is text.

    An empty field is an empty text. After a fault of the table itself the rest is not read.
    """
    lines = _Lines(file)
    begins = 1
    try:
        head = next(lines, None)
        if head is None:
            return
        delimiter = _delimiter(head)
        lines.again(head)
        reader = csv.reader(lines, delimiter=delimiter, strict=True)
        names = _names(next(reader))
        while True:
            begins = lines.begin_row()
            fields = next(reader, None)
            if fields is None:
                return
            if not any(fields):
                continue  # a blank line
            try:
                yield row_of(_row(names, fields))
            except WrongRowError as fault:
                yield RowFault(f"line {begins}", fault.message)
    except WrongRowError as fault:
        yield RowFault(f"line {max(lines.number, 1)}", f"{fault.message}; what follows was not read")
    except csv.Error as error:
        yield RowFault(
            f"line {begins}",
            f"the row is not CSV: {error}; quote texts that hold quotes or lines; what follows was not read",
        )


class _Lines:
    """Lines as text, with their ends; `number` is that of the last one that was given."""

    def __init__(self, file: IO[bytes]) -> None:
        self._lines = bounded_lines(file)
        self._next: str | None = None
        self._row_bytes = 0
        self.number = 0

    def __iter__(self) -> _Lines:
        return self

    def __next__(self) -> str:
        self.number += 1
        if self._next is not None:
            line, self._next = self._next, None
            return line
        data = next(self._lines)
        if self.number == 1:
            data = data.removeprefix(_BOM)
        self._row_bytes += len(data)
        if self._row_bytes > MAX_ROW_BYTES:
            raise WrongRowError(f"the row is longer than {MAX_ROW_BYTES:,} bytes")
        try:
            return data.decode("utf-8") + "\n"
        except UnicodeDecodeError as error:
            raise not_utf8(error) from None

    def begin_row(self) -> int:
        """Where the next row begins; a row is bounded in bytes, however many lines it has."""
        self._row_bytes = 0
        return self.number + 1

    def again(self, line: str) -> None:
        """Gives `line`, the last one, once more."""
        self._next = line
        self.number -= 1


def _delimiter(head: str) -> str:
    """The one by which the head has a column that tells the shape of the rows."""
    for delimiter in _DELIMITERS:
        names = next(csv.reader([head], delimiter=delimiter))
        if any(name.strip() in TELLING_COLUMNS for name in names):
            return delimiter
    raise WrongRowError(
        f"the head of the table is {shown(head.strip())}, which names no column of "
        f"{', '.join(TELLING_COLUMNS)}; name the column of the prompts prompt"
    )


def _names(head: list[str]) -> list[str]:
    names = [name.strip() for name in head]
    for name in names:
        if not name:
            raise WrongRowError("a column has no name in the head; name it, or remove it")
        if names.count(name) > 1:
            raise WrongRowError(f"the column {shown(name)} stands twice in the head; rename one of the two")
    return names


def _row(names: list[str], fields: list[str]) -> dict[str, str]:
    if len(fields) != len(names):
        raise WrongRowError(
            f"the row has {len(fields)} fields and the head names {len(names)} columns; quote texts that "
            "hold the separator"
        )
    return dict(zip(names, fields, strict=True))
