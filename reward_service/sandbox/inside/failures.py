"""What an exception of the reward code is told as: its own file and line, and the end of the traceback."""

from __future__ import annotations

import reprlib
import traceback
from typing import Final

_MOST_CHARACTERS: Final = 3000
_MOST_FRAMES: Final = 6

_short = reprlib.Repr()
_short.maxstring = _short.maxother = 120


def shown(value: object) -> str:
    """A value, and its type, as a short text."""
    try:
        text = _short.repr(value)
    except Exception:
        text = "a value that cannot be shown"
    return f"{cut(text, 160)} ({type(value).__name__})"


def line_of(error: BaseException, filename: str) -> int:
    """The line of the user's file that the exception passed through last, or 0."""
    lines = [number for name, number in _places(error) if name == filename]
    return lines[-1] if lines else 0


def raised(error: BaseException, filename: str) -> str:
    """The exception, where it was raised, and the last lines of its traceback from the user's file on."""
    line = line_of(error, filename)
    place = f"{filename}:{line}" if line else filename
    try:
        told = str(error)
    except Exception:
        told = "its text cannot be had"
    head = f"raised {type(error).__name__} ({place}): {cut(told, _MOST_CHARACTERS // 2)}"
    frames = traceback.extract_tb(error.__traceback__)
    first = next((index for index, frame in enumerate(frames) if frame.filename == filename), len(frames))
    lines = traceback.format_list(frames[first:][-_MOST_FRAMES:])
    return cut(f"{head}\n{''.join(lines)}".rstrip(), _MOST_CHARACTERS)


def cut(text: str, most: int) -> str:
    """At most `most` characters of a text."""
    return text if len(text) <= most else f"{text[:most]}…"


def _places(error: BaseException) -> list[tuple[str, int]]:
    return [(frame.filename, frame.lineno or 0) for frame in traceback.extract_tb(error.__traceback__)]
