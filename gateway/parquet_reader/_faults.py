"""What the program says is wrong with a file."""

from __future__ import annotations


class TooLargeError(Exception):
    """The file takes more than may be unpacked; the message says what, and the way out."""


class WrongValueError(Exception):
    """A row holds what JSON does not have; the message says what, and the way out."""
