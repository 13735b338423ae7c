"""Small files that appear whole."""

from __future__ import annotations

import os
from pathlib import Path

from plaudit.service import private_opener


def write_whole(path: Path, text: str) -> None:
    """Writes `text` to `path`, which holds the old text or the new one, whatever happens. Raises OSError."""
    partial = path.with_name(f".{path.name}.partial")
    with open(partial, "w", encoding="utf-8", opener=private_opener) as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    partial.rename(path)
