"""How the program and who starts it talk: lines, of a kind of one byte and JSON."""

from __future__ import annotations

from typing import Final

READY: Final = b"h"
"""The program runs, and begins to read: null. The first line."""
BATCH: Final = b"b"
"""Rows that follow, and the bytes that they take unpacked: [rows, bytes]."""
ROW: Final = b"r"
"""A row: an object."""
WRONG_ROW: Final = b"w"
"""In the place of a row, what is wrong with it: text."""
LARGE_ROW: Final = b"l"
"""In the place of a row that is too large: null."""
END: Final = b"e"
"""All was read: null. This or one of the following is the last line."""
DOUBLED_COLUMN: Final = b"d"
"""Two columns have one name: text."""
TOO_LARGE: Final = b"t"
"""Something takes too much to be unpacked: text."""
UNREADABLE: Final = b"u"
"""The file is no Parquet, from here on: text."""

LAST: Final = frozenset({END, DOUBLED_COLUMN, TOO_LARGE, UNREADABLE})
"""Kinds of the last line."""
