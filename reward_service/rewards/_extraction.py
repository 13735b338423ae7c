"""Finding the answer in a completion. Linear in the text, however degenerate that is."""

from __future__ import annotations

from typing import Final

import re2

from reward_service.rewards._comparison import MAX_NUMBER_LENGTH, NUMBER

# An answer stands near the end; what is before is not read where every character costs.
_MAX_SCANNED_LENGTH: Final = 100_000
_NUMBER_AT_END = re2.compile(f"(?:^|[^0-9])({NUMBER})$")
_PER_CENT = re2.compile(r"[ \t]*\\?%")
_SIGN_AFTER_RELATION = re2.compile(r"[=≈<>≤≥] *([+-]) +$")
_NUMERATOR_AT_END = re2.compile(r"(\d+)/$")
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
        if character in "{}" and _is_escaped(tail, position):
            continue
        if character == "}":
            ends.append(position)
        elif character == "{" and ends:
            end = ends.pop()
            if tail.startswith(_BOX, position - len(_BOX) + 1):
                return tail[position + 1 : end]
    return None


def _is_escaped(text: str, position: int) -> bool:
    before = position
    while before > 0 and text[before - 1] == "\\":
        before -= 1
    return (position - before) % 2 == 1


def last_number(text: str) -> str | None:
    """The last number, or the fraction of two whole numbers that it ends, as 3/4.

    A sign counts where it does not follow a letter, a digit or a closing bracket; one that is apart from its
    number, where it follows a relation, as in x = - 5. A per cent sign is part of the number.
    """
    end = max(text.rfind(digit) for digit in "0123456789") + 1
    if end == 0:
        return None
    start = max(0, end - MAX_NUMBER_LENGTH - 1)
    window = text[start:end].replace("\N{MINUS SIGN}", "-")
    match = _NUMBER_AT_END.search(window)
    if match is None:
        return None
    begin = match.start(1)
    if match.group(1).isdecimal():
        numerator = _NUMERATOR_AT_END.search(window[:begin])
        if numerator is not None and not _goes_on_from(window, numerator.start(1), ".,/"):
            begin = numerator.start(1)
    if window[begin] in "+-":
        begin += 1
    signed = window[begin - 1 : begin] in ("+", "-") and not _goes_on_from(window, begin - 1, ")]}")
    sign = window[begin - 1] if signed else ""
    apart = None if sign else _SIGN_AFTER_RELATION.search(window[:begin])
    if apart is not None:
        sign = apart.group(1)
    per_cent = _PER_CENT.match(text[end : end + 100])
    return f"{sign}{window[begin:]}{'%' if per_cent else ''}"


def _goes_on_from(text: str, begin: int, marks: str) -> bool:
    """Whether what begins at `begin` follows on a letter, a digit, or one of `marks`."""
    before = text[begin - 1 : begin]
    return before.isalnum() or (before != "" and before in marks)
