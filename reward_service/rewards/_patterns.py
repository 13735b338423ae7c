"""Patterns that people configure, for hostile text: RE2, whose time is linear in the text."""

from __future__ import annotations

from typing import Any, Final

import re2

MAX_PATTERN_LENGTH: Final = 500
_MAX_PROGRAM_SIZE: Final = 5000
_MAX_MEMORY_BYTES: Final = 8 << 20


def compile_pattern(pattern: str) -> Any:
    """Compiles an RE2 pattern. `^` and `$` are the ends of the text; `(?s)` lets `.` match line ends.

    Raises ValueError, with the way out, where it is no RE2 pattern, or is too large: the time to match grows
    with the product of pattern and text.
    """
    if len(pattern) > MAX_PATTERN_LENGTH:
        raise ValueError(f"the pattern has {len(pattern)} characters; it has at most {MAX_PATTERN_LENGTH}")
    options = re2.Options()
    options.log_errors = False
    options.max_mem = _MAX_MEMORY_BYTES
    try:
        compiled = re2.compile(pattern, options)
    except UnicodeEncodeError:
        raise ValueError("the pattern is not valid Unicode") from None
    except re2.error as error:
        reason = error.args[0]
        told = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
        raise ValueError(
            f"the pattern is no RE2 pattern: {told} (RE2 has no look-around and no backreferences)"
        ) from None
    if compiled.programsize > _MAX_PROGRAM_SIZE:
        raise ValueError(
            f"the pattern is too large: {compiled.programsize} steps of RE2, of at most {_MAX_PROGRAM_SIZE}; "
            "a counted repetition costs as much as all that it repeats, a class as \\p{L} some 1,200 each "
            "time; use + and * in place of counts, or fewer classes"
        )
    return compiled
