"""JSON of rows: parsed strictly, whatever the bytes are."""

from __future__ import annotations

import json
import math
import sys
from typing import Any, Final, NoReturn

from gateway.datasets.faults import WrongRowError
from plaudit.types.validation import MAX_DEPTH, TOO_DEEP, json_fault, nests_deeper, shown


def parse_json(line: bytes) -> object:
    """The value in one line of JSON, or WrongRowError."""
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise not_utf8(error) from None
    try:
        return scan_json(text, 0, whole=True)[0]
    except json.JSONDecodeError as error:
        raise WrongRowError(f"the row is not JSON: {error.msg} at column {error.colno}") from None


def not_utf8(error: UnicodeDecodeError) -> WrongRowError:
    """The fault of text in another encoding."""
    return WrongRowError(
        f"the row is not UTF-8 (byte 0x{error.object[error.start]:02x} at position {error.start + 1}); "
        "save the file as UTF-8"
    )


def scan_json(text: str, start: int, *, whole: bool = False) -> tuple[object, int]:
    """The value that begins at `start`, and where it ends; with `whole`, all of `text` is one value.

    Raises json.JSONDecodeError where there is no complete value, and WrongRowError for one that is refused.
    """
    try:
        if whole:
            value, end = _DECODER.decode(text), len(text)
        else:
            value, end = _DECODER.raw_decode(text, start)
    except json.JSONDecodeError:
        raise
    except ValueError:
        # Python reads no whole number of more digits than this.
        limit = sys.get_int_max_str_digits()
        raise WrongRowError(
            f"the row holds a whole number of more than {limit:,} digits; write it as text"
        ) from None
    except RecursionError:
        raise WrongRowError(f"the row {TOO_DEEP}") from None
    # Brackets are counted first because the walk takes as long as the parsing.
    brackets = text.count("[", start, end) + text.count("{", start, end)
    if brackets > MAX_DEPTH and nests_deeper(value, MAX_DEPTH):
        raise WrongRowError(f"the row {TOO_DEEP}")
    if text.find("\\u", start, end) >= 0 and (fault := json_fault(value)) is not None:
        # Only an escape can write half of a surrogate pair.
        raise WrongRowError(f"the row {fault}")
    return value, end


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        seen: set[str] = set()
        twice = next(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise WrongRowError(f"the name {shown(twice)} stands twice in one object; keep one of the two")
    return value


def _float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise WrongRowError(f"{text[:40]} is beyond the range of a number; write it smaller, or as text")
    return value


def _constant(text: str) -> NoReturn:
    raise WrongRowError(f"{text} is no JSON value; write null, or leave the column out")


_DECODER: Final = json.JSONDecoder(object_pairs_hook=_object, parse_float=_float, parse_constant=_constant)
