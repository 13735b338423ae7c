"""Texts and values of other people's programs, made fit to be shown."""

from __future__ import annotations

import json
from typing import Final

_SHOWN_VALUE_LENGTH: Final = 80


def one_line(text: str, most: int) -> str:
    """Names and sentences as they can stand in a table or a log: on one line, without control characters.

    Every run of blanks, line ends included, is one blank; any other character that is not printable, such as
    one that steers a terminal or turns the direction of writing, is U+FFFD. At most `most` characters are
    looked at.
    """
    shown = "".join(c if c.isprintable() or c.isspace() else "\ufffd" for c in text[:most])
    return " ".join(shown.split())


def shown(value: object) -> str:
    """A value as it is shown in an error: JSON where it can be, and short."""
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError):
        text = repr(value)
    # Half of a surrogate pair is no character, and no message that holds it can be sent.
    text = text.encode("utf-8", "backslashreplace").decode("utf-8")
    return text if len(text) <= _SHOWN_VALUE_LENGTH else f"{text[:_SHOWN_VALUE_LENGTH]}…"
