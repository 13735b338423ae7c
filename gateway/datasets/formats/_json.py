"""JSON: one list of objects, in which each object is a row."""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterator
from typing import IO, Final

from gateway.datasets.faults import RowFault, WrongRowError
from gateway.datasets.json_values import not_utf8, scan_json
from gateway.datasets.rows import MAX_ROW_BYTES, Row, row_of

_READ_BYTES: Final = 256 * 1024
_SPACE: Final = " \t\r\n"
_END: Final = ""
_LONGEST_TOKEN: Final = 16
"""Characters of the longest token that a parser may complain of before its end: -Infinity, or an escape."""


def read_json(file: IO[bytes]) -> Iterator[Row | RowFault]:
    """Yields the members of the list that `file` holds; at most a few rows are in memory at a time.

    A member that is no row is passed over, as far as it can be told where it ends; after anything else that
    is wrong the rest of the file is not read.
    """
    text = _Text(file)
    number = 0
    try:
        if text.take() != "[":
            raise WrongRowError(
                "the file is not a list of objects; write one as [{...}, {...}], or send JSONL"
            )
        more = text.peek() != "]"
        while more:
            number += 1
            try:
                yield row_of(text.value())
            except WrongRowError as fault:
                if text.lost:
                    yield RowFault(f"row {number}", f"{fault.message}; what follows was not read")
                    return
                yield RowFault(f"row {number}", fault.message)
            separator = text.take()
            more = separator == ","
            if not more and separator != "]":
                number += 1
                what = "the file ends" if separator == _END else f"there is {separator!r}"
                raise WrongRowError(
                    f"{what} where the list should go on with a comma or end with ]; what follows was not "
                    "read"
                )
        if not more and number == 0:
            text.take()
        if text.peek() != _END:
            number += 1
            raise WrongRowError("something stands behind the end of the list; send one list")
    except WrongRowError as fault:
        yield RowFault(f"row {max(number, 1)}", fault.message)


class _Text:
    """The text of a file, of which as much is held as the next value needs. `lost`: its rest is no use."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._decoder = codecs.getincrementaldecoder("utf-8-sig")()
        self._text = ""
        self._at = 0
        self._ended = False
        self.lost = False

    def peek(self) -> str:
        """The next character that is no space, or "" at the end."""
        while True:
            while self._at < len(self._text) and self._text[self._at] in _SPACE:
                self._at += 1
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._read(_READ_BYTES):
                return _END

    def take(self) -> str:
        """As `peek`, and goes on behind it."""
        character = self.peek()
        self._at += len(character)
        return character

    def value(self) -> object:
        """The next value. WrongRowError where there is none, or it is refused."""
        self.peek()
        size = _READ_BYTES
        while True:
            try:
                value, end = scan_json(self._text, self._at)
            except json.JSONDecodeError as error:
                # What cannot be parsed may be cut off here; twice as much each time, so that it stays linear.
                cut_off = error.msg.startswith("Unterminated") or error.pos + _LONGEST_TOKEN > len(self._text)
                place = error.pos - self._at + 1
                too_long = len(self._text) - self._at > MAX_ROW_BYTES
                if cut_off and not too_long and self._read(size):
                    size *= 2
                    continue
                self.lost = True
                if cut_off and too_long:
                    raise _too_long() from None
                raise WrongRowError(f"the row is not JSON: {error.msg} at its character {place}") from None
            except WrongRowError:
                self.lost = True
                raise
            if end == len(self._text) and self._read(_READ_BYTES):
                continue  # a number may go on
            self._at = end
            return value

    def _read(self, size: int) -> bool:
        """Holds more of the file; False at its end."""
        if self._ended:
            return False
        block = self._file.read(size)
        self._ended = not block
        try:
            fresh = self._decoder.decode(block, final=self._ended)
        except UnicodeDecodeError as error:
            self.lost = True
            self._ended = True
            raise not_utf8(error) from None
        self._text = self._text[self._at :] + fresh
        self._at = 0
        return not self._ended


def _too_long() -> WrongRowError:
    return WrongRowError(f"the row is longer than {MAX_ROW_BYTES:,} bytes, or does not end")
