"""Job files: a job spec as TOML or JSON."""

from __future__ import annotations

import tomllib
from pathlib import Path

from plaudit.errors import InvalidArgumentError


def read_job_file(path: Path) -> object:
    """The data of a job file, not validated yet. `-` reads JSON from stdin."""
    from plaudit.types.validation import load_json

    name = str(path)
    try:
        text = (Path("/dev/stdin") if name == "-" else path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise InvalidArgumentError.of(
            "file", f"{name!r} cannot be read ({why}); name a job file in TOML or JSON"
        ) from None
    is_json = path.suffix == ".json" or name == "-"
    try:
        return load_json(text) if is_json else tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        kind = "JSON" if is_json else "TOML"
        raise InvalidArgumentError.of("file", f"{name!r} is not {kind} ({error}); mend it there") from None
