"""Folders that are complete or not there: a manifest of all files, and all on disk before the rename."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

MANIFEST = "manifest.json"


def seal(folder: Path, facts: Mapping[str, Any]) -> tuple[int, str]:
    """Writes the manifest (`facts`, and "files" with the digest and size of each) and brings all to disk.

    Returns the size of everything in bytes, and the manifest's SHA-256 in hex.
    """
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    manifest = {
        **facts,
        "files": {
            path.relative_to(folder).as_posix(): {
                "sha256": digest(path),
                "size_bytes": path.stat().st_size,
            }
            for path in files
        },
    }
    path = folder / MANIFEST
    path.write_text(json.dumps(manifest, indent=2) + "\n", "utf-8")
    for file in [*files, path]:
        sync(file)
    for inner in [*(p for p in folder.rglob("*") if p.is_dir()), folder]:
        sync(inner)
    return sum(file.stat().st_size for file in [*files, path]), digest(path)


def digest(path: Path) -> str:
    """SHA-256 of a file, hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sync(path: Path) -> None:
    """Brings a file, or the names in a folder, to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
