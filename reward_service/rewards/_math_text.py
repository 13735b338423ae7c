"""What of an answer's text is put in order before math-verify reads it.

math-verify takes 1e-5 for e - 5, pi for p times i, and an amount in escaped dollars for no mathematics.
"""

from __future__ import annotations

import re
from decimal import Decimal

_SCIENTIFIC = r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)[eE][+-]?[0-9]{1,2}"
_SCIENTIFIC_WITHIN = re.compile(rf"(?<![\w.\\^]){_SCIENTIFIC}(?![\w^]|\.[0-9])")
_TIMES_A_POWER = re.compile(
    r"(?<![\w.\\^/})])([+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+))\s*(?:\\times|\\cdot|\u00d7|\*)\s*10\s*\^\s*"
    r"(?:\{\s*([+-]?[0-9]{1,2})\s*\}|([0-9]))(?![\w^!]|\.[0-9])"
)
_PLAIN_NUMBER = re.compile(r"\s*[+-]?(?:[0-9][0-9,]*(?:\.[0-9]*)?|\.[0-9]+)\s*")
_BOXED = re.compile(r"(\\boxed\s*\{)([^{}]*)\}")
_CURRENCY = re.compile(r"(?<!\\)\\\$(?=\s*[0-9.])")
_NAME_WITHOUT_MARK = re.compile(
    r"(?<![A-Za-z\\{])(pi|sin|cos|tan|cot|sec|csc|arcsin|arccos|arctan|log|ln|exp)(?![A-Za-z])"
)


def tidied_answer(text: str) -> str:
    """An answer: amounts as \\$18.90 lose their mark, names of functions and pi get their backslash."""
    return _NAME_WITHOUT_MARK.sub(r"\\\1 ", _CURRENCY.sub("", text))


def tidied_text(text: str) -> str:
    """Text that holds an answer, in which what is boxed is tidied as an answer is."""
    return _BOXED.sub(lambda match: match[1] + tidied_answer(match[2]) + "}", _CURRENCY.sub("", text))


def tidied_gold(text: str) -> str:
    """As `tidied_answer`; one that is a number in scientific notation becomes the decimals that it is."""
    written_out = without_exponents(text)
    return written_out if is_plain_number(written_out) else tidied_answer(text)


def is_plain_number(text: str) -> bool:
    """Whether `text` is decimals and nothing else: beside it, 1e-5 is a number."""
    return _PLAIN_NUMBER.fullmatch(text) is not None


def without_exponents(text: str) -> str:
    """`text` with the numbers in scientific notation as the decimals that they are."""
    text = _TIMES_A_POWER.sub(lambda m: _written_out(f"{m[1]}e{m[2] or m[3]}"), text)
    return _SCIENTIFIC_WITHIN.sub(lambda match: _written_out(match.group()), text)


def _written_out(number: str) -> str:
    return format(Decimal(number), "f")
