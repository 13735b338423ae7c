"""Models and checkpoints."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class ModelStatus(StrEnum):
    """Whether a model can be had."""

    EXPORTING = "exporting"
    AVAILABLE = "available"
    UNAVAILABLE = "unavailable"


class ModelKind(StrEnum):
    """What the files of a model hold."""

    FULL = "full"
    """A whole model, all of whose weights were trained."""
    MERGED = "merged"
    """A whole model, of which adapters are a part."""
    ADAPTER = "adapter"
    """Adapters alone, for the base model."""


@dataclass(frozen=True, slots=True)
class ModelFile:
    """A file of a model: `path` below its folder, SHA-256 in hex."""

    path: str
    size_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Model:
    """A model that a job has made, as it stood when it was read.

    `is_final`: of the job's last checkpoint, by the run itself; others were asked for. `status_detail` says
    why it is not available, or how its export goes. `files` are all that it has once it is available.
    """

    id: str
    name: str
    job_id: str
    base_model: str
    step: int
    attempt: int
    is_final: bool
    kind: ModelKind
    dtype: str
    status: ModelStatus
    status_detail: str
    size_bytes: int
    files: tuple[ModelFile, ...]
    created_at: datetime | None


@dataclass(frozen=True, slots=True)
class DownloadProgress:
    """How far a download has come: the file that arrives, and the bytes of all files."""

    path: str
    received_bytes: int
    total_bytes: int


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint of a job, "job_...@120", whose files are there."""

    id: str
    job_id: str
    step: int
    attempt: int
    size_bytes: int
    file_count: int
    has_adapters: bool
    created_at: datetime | None
