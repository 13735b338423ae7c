"""Reads the counts of a model from its files: config.json and the headers of its safetensors."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from trainer_service.sizing.model_folders import BUILTIN_TINY, local_folder, name_problem
from trainer_service.sizing.shape import ModelShape, shape_of

BUILTIN_TINY_FOLDER: Final = Path(__file__).resolve().parent.parent / "training" / "tiny" / "weights"
"""Where the embedded model lies; its own module belongs to the training process."""

_LARGEST_JSON_BYTES: Final = 100_000_000
"""Largest header that the format allows; no config.json comes near it."""
_INDEX: Final = "model.safetensors.index.json"
_SINGLE: Final = "model.safetensors"


class UnknownModelError(Exception):
    """What a model is like cannot be told here and now. The message says why, for people."""


class BrokenModelError(UnknownModelError):
    """What is named is no model, or one whose files are damaged: it could not be loaded either."""


def read_shape(base_model: str) -> ModelShape:
    """Counts of "builtin:tiny", of a folder, or of a model of the hub that lies in this machine's cache.

    No network is used and no weight is read. Raises UnknownModelError, and BrokenModelError where a folder of
    this machine, or the name itself, is no model. Blocks.
    """
    if problem := name_problem(base_model):
        raise BrokenModelError(problem)
    folder = model_folder(base_model)
    if folder is None:
        raise UnknownModelError(f"{base_model} is not on the trainer's machine yet")
    try:
        config, tensors = _read_json(folder / "config.json"), dict(_tensors(folder))
    except (OSError, ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError) as error:
        said = f"{base_model} cannot be read: {error}"
        if local_folder(base_model) is None:
            raise UnknownModelError(said) from error
        raise BrokenModelError(
            f"{said}; check that the folder is complete, or save the model again"
        ) from error
    try:
        return shape_of(config, tensors.items())
    except (OSError, ValueError, KeyError, TypeError, AttributeError, ZeroDivisionError) as error:
        raise UnknownModelError(f"{base_model} cannot be read: {error}") from error


def model_folder(base_model: str) -> Path | None:
    """The folder with the files of a model, or None where they are not on this machine. Blocks."""
    if base_model == BUILTIN_TINY:
        return BUILTIN_TINY_FOLDER
    return local_folder(base_model) or _cached_folder(base_model)


def _cached_folder(base_model: str) -> Path | None:
    # Takes a while to import, and is needed for models of the hub alone.
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        config = try_to_load_from_cache(base_model, "config.json")
    except (HFValidationError, OSError, ValueError):
        return None
    return Path(config).parent if isinstance(config, str) else None


def _tensors(folder: Path) -> Iterator[tuple[str, Sequence[int]]]:
    files = list(_weight_files(folder))
    if not files:
        raise ValueError("it has no *.safetensors file")
    for file in files:
        for name, entry in _read_header(file).items():
            if name != "__metadata__":
                yield name, entry["shape"]


def _weight_files(folder: Path) -> list[Path]:
    if (folder / _INDEX).is_file():
        names = set(_read_json(folder / _INDEX)["weight_map"].values())
        return [folder / Path(name).name for name in sorted(names)]
    if (folder / _SINGLE).is_file():
        return [folder / _SINGLE]
    return sorted(folder.glob("*.safetensors"))


def _read_header(file: Path) -> Mapping[str, Any]:
    with file.open("rb") as stream:
        size = int.from_bytes(stream.read(8), "little")
        if size > _LARGEST_JSON_BYTES:
            raise ValueError(f"{file.name} is no safetensors file")
        header = _parsed_header(file.name, stream.read(size))
    ends = [entry["data_offsets"][1] for entry in header.values() if "data_offsets" in entry]
    if (there := file.stat().st_size) < (whole := 8 + size + max(ends, default=0)):
        raise ValueError(f"{file.name} is cut off: it has {there:,} of {whole:,} bytes")
    return header


def _parsed_header(file_name: str, text: bytes) -> dict[str, Any]:
    try:
        header = json.loads(text)
    except ValueError as error:
        raise ValueError(f"{file_name} is no safetensors file, or cut off ({error})") from error
    if not isinstance(header, dict):
        raise ValueError(f"{file_name} is no safetensors file")
    return header


def _read_json(file: Path) -> dict[str, Any]:
    if file.stat().st_size > _LARGEST_JSON_BYTES:
        raise ValueError(f"{file.name} is too large")
    value = json.loads(file.read_text("utf-8"))
    if not isinstance(value, dict):
        raise ValueError(f"{file.name} is no JSON object")
    return value
