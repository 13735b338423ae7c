"""Names that people give to what they register."""

from __future__ import annotations

import re
from typing import Final

from plaudit.errors import FieldViolation
from plaudit.types.validation import shown

_NAME: Final = re.compile(r"[a-z][a-z0-9_-]{0,62}")


def name_violations(name: str, example: str) -> list[FieldViolation]:
    """What is wrong with a name of small letters, digits, underscores and dashes."""
    if _NAME.fullmatch(name):
        return []
    return [
        FieldViolation(
            "name",
            f"{shown(name)} is refused: a name has 1 to 63 small letters, digits, underscores and "
            f'dashes, and starts with a letter; for example "{example}"',
        )
    ]
