"""Names of base models that can be no model, whatever is downloaded: told before anything is loaded."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

BUILTIN_TINY: Final = "builtin:tiny"
"""Name of the embedded model."""

_HUB_ID: Final = re.compile(r"^[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?$")


def local_folder(base_model: str) -> Path | None:
    """The folder of this name, or None; a name that no file system takes is none. Blocks."""
    path = Path(base_model)
    try:
        path = path.expanduser()
        return path if path.is_dir() else None
    except (OSError, RuntimeError, ValueError):
        return None


def name_problem(base_model: str) -> str | None:
    """Why this is the name of no model on this machine and of none of the hub, for people; None: it may be
    one. Blocks.
    """
    if base_model == BUILTIN_TINY:
        return None
    if folder := local_folder(base_model):
        return _folder_problem(base_model, folder)
    if _is_file(base_model):
        return f"base_model {base_model!r} is a file; give the folder that holds config.json"
    if not _HUB_ID.match(base_model):
        return (
            f"base_model {base_model!r} is not a folder on the trainer's machine, and not a hub id such as "
            f"Qwen/Qwen3-0.6B either; {BUILTIN_TINY!r} is always there"
        )
    return None


def _is_file(base_model: str) -> bool:
    try:
        return Path(base_model).expanduser().exists()
    except (OSError, RuntimeError, ValueError):
        return False


def _folder_problem(base_model: str, folder: Path) -> str | None:
    if (folder / "adapter_config.json").exists():
        return (
            f"base_model {base_model!r} holds an adapter; merge it into its base model and give that folder"
        )
    if not (folder / "config.json").exists():
        return f"base_model {base_model!r} has no config.json; give the folder that save_pretrained wrote"
    if not any(folder.glob("*.safetensors")):
        return (
            f"base_model {base_model!r} has no *.safetensors file, and other formats are not loaded because "
            "they can run code; save the model again with save_pretrained"
        )
    return None
