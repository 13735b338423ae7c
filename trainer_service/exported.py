"""Models in folders under the artifact root, as their manifests describe them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

MODEL_MANIFEST: Final = "manifest.json"
"""Written last: a folder without it holds no model."""

ModelForm: TypeAlias = Literal["merged", "adapter"]
"""What is asked for: the whole model, or adapters alone."""

ModelKind: TypeAlias = Literal["full", "merged", "adapter"]
"""What came of it: all weights were trained, adapters were merged, or adapters alone."""

WeightType: TypeAlias = Literal["float32", "bfloat16"]
"""Type of the weights in the files."""


@dataclass(frozen=True, slots=True)
class ModelFile:
    """A file of a model: `path` below its folder, SHA-256 in hex."""

    path: str
    size_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class ExportedModel:
    """A model in the folder `uri`, relative to the artifact root, with all of its files."""

    uri: str
    kind: ModelKind
    dtype: WeightType
    files: tuple[ModelFile, ...]

    @classmethod
    def of(cls, values: dict[str, Any]) -> ExportedModel:
        """The model in JSON-like data, as dataclasses.asdict gives it."""
        return cls(
            uri=values["uri"],
            kind=values["kind"],
            dtype=values["dtype"],
            files=tuple(ModelFile(**file) for file in values["files"]),
        )


def read_exported(artifact_root: Path, uri: str) -> ExportedModel | None:
    """The model in the folder `uri`, or None where there is none that is complete. Blocks."""
    try:
        manifest: dict[str, Any] = json.loads((artifact_root / uri / MODEL_MANIFEST).read_text("utf-8"))
        return ExportedModel(
            uri=uri,
            kind=manifest["kind"],
            dtype=manifest["dtype"],
            files=tuple(
                ModelFile(path, file["size_bytes"], file["sha256"])
                for path, file in manifest["files"].items()
            ),
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None
