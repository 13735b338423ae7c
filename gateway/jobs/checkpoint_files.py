"""Whether a checkpoint's files are still there.

The store learns from journals which checkpoints were removed. A trainer that could not be reached may have
gone on, and have removed what the store still counts on.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

_MANIFEST: Final = "manifest.json"


def is_gone(artifact_root: Path, uri: str) -> bool:
    """Whether the checkpoint at `uri`, relative to the root, was removed.

    False where its attempt's folder is not there either: then it is the root that is not reached, and nothing
    is known. Blocks.
    """
    folder = artifact_root / uri
    return folder.parent.is_dir() and not (folder / _MANIFEST).is_file()
