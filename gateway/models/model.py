"""A model as the gateway knows it: the export of a job's checkpoint. Plain data, no wire, no store."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final, Literal, TypeAlias

MODELS_FOLDER: Final = "models"
"""Folder of the exports that were asked for, below that of their job."""

ModelForm: TypeAlias = Literal["merged", "adapter"]
WeightType: TypeAlias = Literal["float32", "bfloat16"]


class ModelKind(StrEnum):
    """What the files hold."""

    FULL = "full"
    """A whole model, all of whose weights were trained."""
    MERGED = "merged"
    """A whole model, of which adapters are a part."""
    ADAPTER = "adapter"
    """Adapters alone, for the base model."""


class ModelStatus(StrEnum):
    """Whether a model can be had."""

    EXPORTING = "exporting"
    AVAILABLE = "available"
    UNAVAILABLE = "unavailable"


@dataclass(frozen=True, slots=True)
class ModelFile:
    """A file of a model: `path` below its folder, SHA-256 in hex."""

    path: str
    size_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Model:
    """The export of a checkpoint. `name` is the output name of its job.

    `is_final`: of the job's last checkpoint, by the run itself; others were asked for. `status_detail` says
    why it is not available, or how its export goes, for people. Addresses are relative to the artifact root.
    """

    id: str
    name: str
    job_id: str
    base_model: str
    attempt: int
    step: int
    is_final: bool
    kind: ModelKind
    dtype: WeightType
    status: ModelStatus
    status_detail: str
    checkpoint_uri: str
    uri: str
    files: tuple[ModelFile, ...]
    created_at: datetime

    @property
    def size_bytes(self) -> int:
        """Size of all files."""
        return sum(file.size_bytes for file in self.files)

    @property
    def form(self) -> ModelForm:
        """What a trainer was asked for."""
        return "adapter" if self.kind is ModelKind.ADAPTER else "merged"
