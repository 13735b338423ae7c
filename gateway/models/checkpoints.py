"""Checkpoints of jobs, to be listed and downloaded."""

from __future__ import annotations

import asyncio
import builtins
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from gateway.jobs.job import checkpoint_id
from gateway.models.model import ModelFile
from gateway.pages import Page, page_size
from gateway.store import Session, Store
from gateway.store.attempts import on_line
from gateway.store.checkpoints import CheckpointRecord
from gateway.store.jobs import JobRecord
from plaudit.errors import FailedPreconditionError, InvalidArgumentError, NotFoundError
from plaudit.types.validation import shown

Artifact: TypeAlias = Literal["weights", "resumable", "adapter"]
"""Which files of a checkpoint: those that `from_pretrained` loads, all, or those of adapters."""

MANIFEST: Final = "manifest.json"

_STATE_FILES: Final = re.compile(
    r"optimizer\.pt|scheduler\.pt|scaler\.pt|rng_state.*\.pth|trainer_state\.json|manifest\.json"
)
_ADAPTER_CONFIG: Final = "adapter_config.json"
_DEFAULT_PAGE: Final = 20
_STEPS_SHOWN: Final = 10


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint whose files are there, in the folder `uri` relative to the artifact root.

    Its manifest is not among `files`.
    """

    id: str
    job_id: str
    attempt: int
    step: int
    uri: str
    size_bytes: int
    sha256: str
    files: tuple[ModelFile, ...]
    created_at: datetime

    @property
    def has_adapters(self) -> bool:
        """Whether it holds adapters, and not all weights."""
        return any(file.path == _ADAPTER_CONFIG for file in self.files)

    def files_of(self, artifact: Artifact) -> tuple[ModelFile, ...]:
        """The files to download. Raises FailedPreconditionError for adapters that there are none of."""
        if artifact == "adapter" and not self.has_adapters:
            raise FailedPreconditionError(
                f"checkpoint {self.id} holds all weights, and no adapters; ask for its weights",
                reason="NO_ADAPTERS",
            )
        if artifact == "resumable":
            rest = self.size_bytes - sum(file.size_bytes for file in self.files)
            return (*self.files, ModelFile(MANIFEST, rest, self.sha256))
        return tuple(file for file in self.files if not _STATE_FILES.fullmatch(file.path))


class CheckpointCatalog:
    """The checkpoints in the store, with the files that are on disk."""

    def __init__(self, store: Store, artifact_root: Path) -> None:
        self._store = store
        self._artifact_root = artifact_root

    async def list(self, job_id: str, *, limit: int = 0, after: str = "") -> Page[Checkpoint]:
        """Checkpoints of a job that are there, newest step first. `limit` 0 is 20, above 500 is 500; `after`
        is the id of the last one of the page before. Raises NotFoundError (job), InvalidArgumentError.
        """
        size = page_size(limit, _DEFAULT_PAGE)
        async with self._store.snapshot() as session:
            record = await require_job(session, job_id)
            stored = await _there(session, record)
        before = _parse_after(job_id, after)
        found = [c for c in stored if before is None or c.step < before]
        checkpoints = await self._read(job_id, found[:size])
        more = len(found) > size
        return Page(checkpoints, checkpoint_id(job_id, found[size - 1].step) if more else "")

    async def get(self, job_id: str, checkpoint: str) -> Checkpoint:
        """A checkpoint of a job by its id, "job_...@120", or by its step alone. Raises NotFoundError, which
        says which ones there are.
        """
        async with self._store.snapshot() as session:
            record = await require_job(session, job_id)
            stored = await _there(session, record)
            removed = await session.checkpoints.list(record.key)
        step = checkpoint.removeprefix(f"{job_id}@")
        found = await self._read(job_id, [c for c in stored if str(c.step) == step])
        if not found:
            raise _no_checkpoint(
                job_id, checkpoint, stored, was_there=any(str(c.step) == step for c in removed)
            )
        return found[0]

    async def newest(self, job_id: str) -> Checkpoint:
        """The newest checkpoint of a job. Raises NotFoundError."""
        page = await self.list(job_id, limit=1)
        if not page.items:
            raise NotFoundError(
                f"job {job_id} has no checkpoint; it takes one every checkpoint_every, and keeps the newest "
                "checkpoint_keep",
                field="checkpoint",
            )
        return page.items[0]

    async def _read(self, job_id: str, stored: Sequence[CheckpointRecord]) -> builtins.list[Checkpoint]:
        """Those of them whose files are there."""

        def read() -> builtins.list[Checkpoint]:
            return [c for record in stored if (c := _with_files(self._artifact_root, job_id, record))]

        return await asyncio.to_thread(read)


async def require_job(session: Session, job_id: str) -> JobRecord:
    """The job, or NotFoundError."""
    record = await session.jobs.find(job_id)
    if record is None:
        raise NotFoundError(f"there is no training job {shown(job_id)}; list the jobs to see their ids")
    return record


async def _there(session: Session, record: JobRecord) -> list[CheckpointRecord]:
    """The checkpoints that count and were not removed, newest step first."""
    line = await session.runs.line(record.key)
    stored = [
        c
        for c in await session.checkpoints.list(record.key)
        if c.removed_at is None and on_line(line, c.attempt, c.step)
    ]
    return sorted(stored, key=lambda c: c.step, reverse=True)


def _with_files(root: Path, job_id: str, record: CheckpointRecord) -> Checkpoint | None:
    try:
        manifest: Mapping[str, Any] = json.loads((root / record.uri / MANIFEST).read_text("utf-8"))
        files = tuple(
            ModelFile(path, file["size_bytes"], file["sha256"]) for path, file in manifest["files"].items()
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return Checkpoint(
        id=checkpoint_id(job_id, record.step),
        job_id=job_id,
        attempt=record.attempt,
        step=record.step,
        uri=record.uri,
        size_bytes=record.size_bytes,
        sha256=record.sha256,
        files=files,
        created_at=record.saved_at,
    )


def _parse_after(job_id: str, after: str) -> int | None:
    if not after:
        return None
    step = after.removeprefix(f"{job_id}@")
    if not re.fullmatch(r"\d{1,10}", step, re.ASCII):
        raise InvalidArgumentError.of(
            "page_token",
            f"{shown(after)} is not the id of a checkpoint of {job_id}; list again from the start",
        )
    return int(step)


def _no_checkpoint(
    job_id: str, asked: str, stored: Sequence[CheckpointRecord], *, was_there: bool
) -> NotFoundError:
    steps = [f"@{c.step}" for c in stored[:_STEPS_SHOWN]]
    there = f"there is {', '.join(steps)}" if steps else "there is none"
    why = "was removed, as only the newest checkpoint_keep are kept" if was_there else "is not known"
    return NotFoundError(f"checkpoint {shown(asked)} of job {job_id} {why}; {there}", field="checkpoint")
