"""Whether an answer that was found in hostile text is the one that was expected."""

from __future__ import annotations

import unicodedata
from decimal import Decimal
from typing import Final

import re2

from plaudit.types.scoring import JsonValue

# Longer ones are compared as text. Decimals compare exactly and in no time, exponents included.
MAX_NUMBER_LENGTH: Final = 1000
MAX_NORMALIZED_LENGTH: Final = 4096
NUMBER: Final = r"[+-]?(?:\d{1,3}(?:,\d{3})+(?:\.\d*)?|\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d{1,9})?"

_NUMBER = re2.compile(NUMBER)


def number_of(text: str) -> Decimal | None:
    """The number that `text` is, exactly, or None: sign, digits or thousands (1,234), fraction, exponent."""
    text = text.strip().replace("\N{MINUS SIGN}", "-")
    if len(text) > MAX_NUMBER_LENGTH or not _NUMBER.fullmatch(text):
        return None
    return Decimal(text.replace(",", ""))


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
        self._numbers: set[Decimal] = set()
        self._texts: set[str] = set()
        self._words: set[str] = set()
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
            self._numbers.add(Decimal(accepted))
        elif isinstance(accepted, float):
            # By the shortest text that is this float, so that the column's 0.1 is the answer's 0.1.
            self._numbers.add(Decimal(repr(accepted)))
        elif isinstance(accepted, str):
            self._texts.add(normalized(accepted, ignore_case=self._ignore_case))
            number = number_of(accepted)
            if number is not None:
                self._numbers.add(number)
        else:
            found = "null" if accepted is None else f"a {type(accepted).__name__}"
            raise ValueError(f"holds {found}; an answer is text, a number, true or false")
