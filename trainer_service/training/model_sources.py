"""Where base models come from, and their tokenizers, without what loads their weights."""

from __future__ import annotations

import re
from pathlib import Path

from transformers import AutoTokenizer, PreTrainedTokenizerBase

from plaudit.errors import PlauditError
from plaudit.types.statuses import ErrorCode
from trainer_service.training.tiny import tiny_model_path

BUILTIN_TINY = "builtin:tiny"
"""Name of the embedded model."""

_HUB_ID = re.compile(r"^[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?$")


class ModelError(PlauditError):
    """A base model cannot be trained. The message names it, what is wrong and the way out."""

    default_reason = "MODEL_ERROR"
    code = ErrorCode.MODEL_ERROR


def load_tokenizer(base_model: str) -> PreTrainedTokenizerBase:
    """The tokenizer of a base model, as it is. Raises ModelError."""
    source = source_of(base_model)
    try:
        loaded: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(source, trust_remote_code=False)
    except Exception as error:
        raise unloadable(base_model, error) from error
    return loaded


def source_of(base_model: str) -> str:
    """What transformers is to load for "builtin:tiny", a folder or a hub id. Raises ModelError."""
    if base_model == BUILTIN_TINY:
        return str(tiny_model_path())
    if folder := _folder(base_model):
        _check_folder(base_model, folder)
        return str(folder)
    if _is_file(base_model):
        raise ModelError(f"base_model {base_model!r} is a file; give the folder that holds config.json")
    if not _HUB_ID.match(base_model):
        raise ModelError(
            f"base_model {base_model!r} is not a folder on the trainer's machine, and not a hub id such as "
            f"Qwen/Qwen3-0.6B either; {BUILTIN_TINY!r} is always there"
        )
    return base_model


def _folder(base_model: str) -> Path | None:
    """The folder of this name, or None; a name that no file system takes is none."""
    path = Path(base_model)
    try:
        path = path.expanduser()
        return path if path.is_dir() else None
    except (OSError, RuntimeError, ValueError):
        return None


def _is_file(base_model: str) -> bool:
    try:
        return Path(base_model).expanduser().exists()
    except (OSError, RuntimeError, ValueError):
        return False


def _check_folder(base_model: str, folder: Path) -> None:
    if (folder / "adapter_config.json").exists():
        raise ModelError(
            f"base_model {base_model!r} holds an adapter; merge it into its base model and give that folder"
        )
    if not (folder / "config.json").exists():
        raise ModelError(
            f"base_model {base_model!r} has no config.json; give the folder that save_pretrained wrote"
        )
    if not any(folder.glob("*.safetensors")):
        raise ModelError(
            f"base_model {base_model!r} has no *.safetensors file, and other formats are not loaded because "
            "they can run code; save the model again with save_pretrained"
        )


def unloadable(base_model: str, error: Exception) -> ModelError:
    """The error for what transformers could not load."""
    reason = (str(error).strip() or type(error).__name__).splitlines()[0]
    if "trust_remote_code" in str(error):
        reason = "it brings code of its own, which is never run"
        way_out = "take a model of an architecture that transformers knows"
    elif _folder(base_model):
        way_out = "check that the folder is complete"
    else:
        way_out = "check the name and the network, or give the path of a folder on the trainer's machine"
    return ModelError(f"base_model {base_model!r} cannot be loaded: {reason}; {way_out}")
