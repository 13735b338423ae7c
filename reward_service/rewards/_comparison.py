"""Whether an answer that was found in hostile text is the one that was expected."""

from __future__ import annotations

import math
import unicodedata
from decimal import Decimal
from fractions import Fraction
from typing import Final, TypeAlias

import re2

from plaudit.types.scoring import JsonValue

# Longer ones are compared as text.
MAX_NUMBER_LENGTH: Final = 1000
MAX_NORMALIZED_LENGTH: Final = 4096
NUMBER: Final = r"[+-]?(?:\d{1,3}(?:,\d{3})+(?:\.\d*)?|\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d{1,9})?"

_NUMBER = re2.compile(rf"({NUMBER})(\s*\\?%)?")
_FRACTION = re2.compile(r"([+-]?)(?:(\d+)\s*/\s*(\d+)|\\[dt]?frac\s*\{\s*(\d+)\s*\}\s*\{\s*(\d+)\s*\})")
# A fraction of a larger magnitude would have to be written out.
_LARGEST_MAGNITUDE: Final = 2000

Number: TypeAlias = Fraction | Decimal
"""A value, exactly, in one form for each: a Decimal beyond a magnitude of 2,000 digits, else a Fraction."""


def number_of(text: str) -> Number | None:
    """The number that `text` is, exactly, or None.

    Sign, digits or thousands (1,234), fraction, exponent, per cent; or whole numbers as 1/2, \\frac{1}{2}.
    """
    text = text.strip().replace("\N{MINUS SIGN}", "-")
    if len(text) > MAX_NUMBER_LENGTH:
        return None
    match = _NUMBER.fullmatch(text)
    if match is not None:
        number = _exactly(Decimal(match.group(1).replace(",", "")))
        if match.group(2) is None:
            return number
        return number / 100 if isinstance(number, Fraction) else None
    match = _FRACTION.fullmatch(text)
    if match is None:
        return None
    numerator, denominator = int(match.group(2) or match.group(4)), int(match.group(3) or match.group(5))
    if denominator == 0:
        return None
    return Fraction(-numerator if match.group(1) == "-" else numerator, denominator)


def _exactly(number: Decimal) -> Number:
    # Decimals compare exactly and in no time, exponents included; as a fraction 1e999999999 never ends.
    if number and abs(number.adjusted()) > _LARGEST_MAGNITUDE:
        return number
    return Fraction(number)


def normalized(text: str, *, ignore_case: bool) -> str:
    """`text` in Unicode's NFC, without white space at its ends, and single spaces within."""
    text = " ".join(text.split())
    if ignore_case:
        text = text.casefold()
    # Its time grows with the square of a run of combining characters.
    return unicodedata.normalize("NFC", text) if len(text) <= MAX_NORMALIZED_LENGTH else text


class Expected:
    """What a column expects: one answer, or any of several."""

    def __init__(self, value: JsonValue, *, ignore_case: bool) -> None:
        """Raises ValueError where `value` holds what no answer can be compared with."""
        self._ignore_case = ignore_case
        self._numbers: set[Number] = set()
        self._texts: set[str] = set()
        self._words: set[str] = set()
        if value == []:
            raise ValueError("holds an empty list; name what is accepted, or null where nothing is asked")
        for accepted in value if isinstance(value, list) else [value]:
            self._add(accepted)

    def accepts(self, answer: str) -> bool:
        """Whether `answer` is one of the expected: as a number by its value, else as text."""
        if normalized(answer, ignore_case=self._ignore_case) in self._texts:
            return True
        if self._words and normalized(answer, ignore_case=True) in self._words:
            return True
        number = number_of(answer) if self._numbers else None
        return number is not None and number in self._numbers

    def _add(self, accepted: JsonValue) -> None:
        if isinstance(accepted, bool):
            self._words.add("true" if accepted else "false")
        elif isinstance(accepted, int):
            # Not by str(), which refuses very long ones.
            text = format(Decimal(accepted), "f")
            if len(text) > MAX_NUMBER_LENGTH:
                self._texts.add(text)
            else:
                self._numbers.add(_exactly(Decimal(accepted)))
        elif isinstance(accepted, float) and math.isfinite(accepted):
            # By the shortest text that is this float, so that the column's 0.1 is the answer's 0.1.
            self._numbers.add(_exactly(Decimal(repr(accepted))))
        elif isinstance(accepted, str):
            self._texts.add(normalized(accepted, ignore_case=self._ignore_case))
            number = number_of(accepted)
            if number is not None:
                self._numbers.add(number)
        else:
            raise ValueError(f"holds {kind_of(accepted)}; an answer is text, a number, true or false")


def kind_of(value: JsonValue) -> str:
    """What of JSON a value is that is no answer, for messages."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case float():
            return "a number that is too large or none"
        case list():
            return "a list within a list"
        case _:
            return "an object"
