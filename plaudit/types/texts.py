"""Texts of other people's programs, made fit to be shown."""

from __future__ import annotations


def one_line(text: str, most: int) -> str:
    """Names and sentences as they can stand in a table or a log: on one line, without control characters.

    Every run of blanks, line ends included, is one blank; any other character that is not printable, such as
    one that steers a terminal or turns the direction of writing, is U+FFFD. At most `most` characters are
    looked at.
    """
    shown = "".join(c if c.isprintable() or c.isspace() else "\ufffd" for c in text[:most])
    return " ".join(shown.split())
