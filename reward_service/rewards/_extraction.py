"""Finding the answer in a completion. Linear in the text, however degenerate that is."""

from __future__ import annotations

from typing import Final

import re2

from reward_service.rewards._comparison import MAX_NUMBER_LENGTH, NUMBER

# An answer stands near the end; what is before is not read where every character costs.
_MAX_SCANNED_LENGTH: Final = 100_000
_NUMBER_AT_END = re2.compile(f"({NUMBER})$")
_BOX: Final = "\\boxed{"


def last_tagged(text: str, tag: str) -> str | None:
    """Content of the last `<tag>…</tag>`, of those that follow each other without overlap."""
    opening, closing = f"<{tag}>", f"</{tag}>"
    found: str | None = None
    position = 0
    while True:
        start = text.find(opening, position)
        if start < 0:
            return found
        start += len(opening)
        end = text.find(closing, start)
        if end < 0:
            return found
        found = text[start:end]
        position = end + len(closing)


def last_boxed(text: str) -> str | None:
    r"""Content of the last `\boxed{…}` whose braces balance."""
    tail = text[-_MAX_SCANNED_LENGTH:]
    ends: list[int] = []
    # Backwards, so that the first box that closes is the last one that opens.
    for position in range(len(tail) - 1, -1, -1):
        character = tail[position]
        if character == "}":
            ends.append(position)
        elif character == "{" and ends:
            end = ends.pop()
            if tail.startswith(_BOX, position - len(_BOX) + 1):
                return tail[position + 1 : end]
    return None


def last_number(text: str) -> str | None:
    """The last number; a sign counts where it does not follow a letter, a digit or a closing bracket."""
    end = max(text.rfind(digit) for digit in "0123456789") + 1
    if end == 0:
        return None
    start = max(0, end - MAX_NUMBER_LENGTH - 1)
    window = text[start:end].replace("\N{MINUS SIGN}", "-")
    match = _NUMBER_AT_END.search(window)
    if match is None:
        return None
    number: str = match.group(1)
    before = window[match.start(1) - 1 : match.start(1)]
    if number[0] in "+-" and before and (before.isalnum() or before in ")]}"):
        return number[1:]
    return number
