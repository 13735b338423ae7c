"""Checkpoints of other jobs that a new job starts from: found, and made the new job's own.

The files are linked into the new job's folder when it is created. So the other job may remove its checkpoint,
and the new one finds it at every attempt, and when its model is exported.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from gateway.jobs.checkpoint_files import is_gone
from gateway.store import Store
from gateway.store.attempts import on_line
from plaudit.errors import NotFoundError
from plaudit.types.jobs import InitCheckpoint
from plaudit.types.statuses import JobStatus
from plaudit.types.training_hyperparameters import TrainingHyperparameters

_MANIFEST: Final = "manifest.json"


@dataclass(frozen=True, slots=True)
class SourceJob:
    """A job whose checkpoints may be started from.

    `checkpoints` are those that are there, the address of each by its step; `inits` is what the job itself
    started from.
    """

    id: str
    status: JobStatus
    base_model: str
    hyperparameters: TrainingHyperparameters
    checkpoints: Mapping[int, str]
    inits: tuple[InitCheckpoint, ...]

    def chain(self, step: int) -> tuple[InitCheckpoint, ...]:
        """What makes the policy after `step` of the base model: adapters need what they were trained on."""
        uri = self.checkpoints[step]
        if self.hyperparameters.lora_rank is None:
            return (InitCheckpoint(uri=uri),)
        return (*self.inits, InitCheckpoint(uri=uri, on_four_bits=self.hyperparameters.load_in_4bit))


class CheckpointSources:
    """The jobs of the store, as sources of checkpoints."""

    def __init__(self, store: Store, artifact_root: Path) -> None:
        self._store = store
        self._artifact_root = artifact_root

    async def find(self, job_id: str) -> SourceJob | None:
        """The job with this id, or None."""
        async with self._store.snapshot() as session:
            record = await session.jobs.find(job_id)
            if record is None:
                return None
            line = await session.runs.line(record.key)
            stored = [
                c
                for c in await session.checkpoints.list(record.key)
                if c.removed_at is None and on_line(line, c.attempt, c.step)
            ]
            inits = await session.init_checkpoints.of(record.key)
        gone = await asyncio.to_thread(lambda: [is_gone(self._artifact_root, c.uri) for c in stored])
        spec = record.job.spec
        return SourceJob(
            id=job_id,
            status=record.job.status,
            base_model=spec.base_model,
            hyperparameters=spec.hyperparameters,
            checkpoints={c.step: c.uri for c, is_away in zip(stored, gone, strict=True) if not is_away},
            inits=inits,
        )

    async def adopt(self, job_id: str, chain: Sequence[InitCheckpoint]) -> tuple[InitCheckpoint, ...]:
        """Links the files of `chain` into the folder of the new job, and returns where they are there.

        Raises NotFoundError where one was removed meanwhile.
        """
        return await asyncio.to_thread(_adopt, self._artifact_root, job_id, tuple(chain))

    async def abandon(self, job_id: str) -> None:
        """Removes the folder of a job that was not created after all."""
        async with self._store.snapshot() as session:
            if await session.jobs.find(job_id) is not None:
                return
        folder = self._artifact_root / _job_folder(job_id)
        await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)


def _job_folder(job_id: str) -> PurePosixPath:
    return PurePosixPath("jobs") / job_id


def _adopt(root: Path, job_id: str, chain: tuple[InitCheckpoint, ...]) -> tuple[InitCheckpoint, ...]:
    adopted = []
    try:
        for number, init in enumerate(chain, start=1):
            uri = _job_folder(job_id) / f"start-{number}" / PurePosixPath(init.uri).name
            _link_folder(root / init.uri, root / uri)
            adopted.append(InitCheckpoint(uri=str(uri), on_four_bits=init.on_four_bits))
    except FileNotFoundError:
        shutil.rmtree(root / _job_folder(job_id), ignore_errors=True)
        raise NotFoundError(
            f"the checkpoint in {init.uri} was removed meanwhile; take a newer one", field="resume_from"
        ) from None
    return tuple(adopted)


def _link_folder(source: Path, target: Path) -> None:
    """Makes `target` a folder with the files of `source`, which never change; the manifest comes last."""
    target.mkdir(parents=True)
    files = [path for path in source.rglob("*") if path.is_file() and path.name != _MANIFEST]
    for path in [*files, source / _MANIFEST]:
        place = target / path.relative_to(source)
        place.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(path, place)
        except FileNotFoundError:
            raise
        except OSError:
            # A file system without links, or with a limit on them.
            shutil.copyfile(path, place)
