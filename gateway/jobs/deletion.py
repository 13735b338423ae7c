"""Deletes jobs: from the store in one transaction, then their files, which a later gateway finishes."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import structlog

from gateway.jobs.creation import unknown_job
from gateway.store import Store
from plaudit.errors import FailedPreconditionError

log = structlog.get_logger(__name__)

_NAMED: Final = 3


class JobDeletion:
    """Deletes jobs that are over, with everything that they left."""

    def __init__(self, store: Store, artifact_root: Path) -> None:
        self._store = store
        self._root = artifact_root

    async def delete(self, job_id: str) -> None:
        """Deletes the job, its rescores included. Raises NotFoundError, FailedPreconditionError
        (STATUS_FORBIDS: it is not over; IN_USE: a rescore reads its completions).
        """
        async with self._store.transaction() as session:
            record = await session.jobs.find(job_id)
            if record is None:
                raise unknown_job(job_id)
            if not record.job.status.is_terminal:
                raise FailedPreconditionError(
                    f"job {job_id} is {record.job.status}: only a job that is over can be deleted; cancel it "
                    "first",
                    reason="STATUS_FORBIDS",
                )
            reading = [r.id for r in await session.rescores.open() if r.job_key == record.key]
            if reading:
                raise FailedPreconditionError(
                    f"job {job_id} is read by rescore {', '.join(reading[:_NAMED])}; cancel it, or wait",
                    reason="IN_USE",
                )
            uri = f"jobs/{job_id}"
            await session.removals.add([uri])
            await session.removals.add_runs_of(record.key)
            await session.jobs.delete(record.key)
        await self._remove([uri])

    async def finish(self) -> None:
        """Removes what an earlier gateway had begun to remove."""
        async with self._store.snapshot() as session:
            left = await session.removals.list()
        if left:
            await self._remove(left)

    async def _remove(self, uris: Sequence[str]) -> None:
        gone = [uri for uri in uris if await asyncio.to_thread(_is_removed, self._root / uri)]
        async with self._store.transaction() as session:
            await session.removals.done(gone)


def _is_removed(folder: Path) -> bool:
    """Removes the folder; False where some of it could not be, which the next start tries again."""
    try:
        shutil.rmtree(folder)
    except FileNotFoundError:
        return not folder.exists()
    except OSError as error:
        log.warning("a folder of a deleted job is not removed yet", path=str(folder), why=str(error))
        return False
    return True
