"""Rows of a dataset: checked, so that a wrong one is named, and brought to one form.

A row is a JSON object. Its `prompt` is text or a list of chat turns; every other column stays as it is.
Shapes that are meant for supervised fine-tuning get their prompt made (`shapes.py`).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from gateway.datasets.faults import WrongRowError
from gateway.datasets.shapes import with_prompt
from plaudit.types.validation import shown

MAX_ROW_BYTES: Final = 4 * 1024 * 1024
"""Largest row: it must fit the 4 MiB in which gRPC carries it to a reward server that sets no limit."""
_LARGEST_CHARACTER: Final = 4
"""Bytes of a character in UTF-8, at most."""
MAX_NAME_LENGTH: Final = 128
"""Longest name of a column, in characters."""

JsonObject: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Row:
    """A row that is right. `prompt_json` and `columns_json` are its normal form; both are valid Unicode.

    `methods` are the training methods that it serves: a row without an answer can not be imitated, and text
    without a prompt can not be answered.
    """

    column_names: tuple[str, ...]
    prompt_json: str
    columns_json: str
    methods: frozenset[str] = frozenset({"grpo"})


def row_of(value: object) -> Row:
    """The row that a JSON-like value stands for, or WrongRowError. The value is taken apart."""
    if isinstance(value, list):
        raise WrongRowError("the row is a JSON list, not an object; write one JSON object a line")
    if not isinstance(value, dict):
        raise WrongRowError(f"the row is {shown(value)}, not a JSON object; write one JSON object a line")
    columns, methods = with_prompt(value)
    prompt = columns.pop("prompt")
    for name in columns:
        if not name or len(name) > MAX_NAME_LENGTH:
            raise WrongRowError(
                f"{shown(name)} is no name for a column; a name has 1 to {MAX_NAME_LENGTH} characters"
            )
    prompt_json, columns_json = _dump(prompt), _dump(columns)
    if len(prompt_json) + len(columns_json) > MAX_ROW_BYTES // _LARGEST_CHARACTER and (
        len(prompt_json.encode()) + len(columns_json.encode()) > MAX_ROW_BYTES
    ):
        raise WrongRowError(f"the row is longer than {MAX_ROW_BYTES:,} bytes; split it or shorten it")
    return Row(tuple(columns), prompt_json, columns_json, methods)


_dump: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
