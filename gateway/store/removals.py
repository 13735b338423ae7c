"""What is left of deleted jobs: files that may still lie there, and runs that trainers may still have."""

from __future__ import annotations

import builtins
from collections.abc import Iterable

import aiosqlite


class Removals:
    """Reads and writes what is to be removed on one connection. Paths are relative to the artifact root."""

    def __init__(self, connection: aiosqlite.Connection) -> None:
        self._connection = connection

    async def list(self) -> builtins.list[str]:
        """Every file and folder whose removal is not finished."""
        rows = await self._connection.execute_fetchall("SELECT uri FROM removals ORDER BY uri")
        return [row[0] for row in rows]

    async def add(self, uris: Iterable[str]) -> None:
        """Notes files and folders that are to be removed once this transaction is committed."""
        await self._connection.executemany(
            "INSERT OR IGNORE INTO removals VALUES (?)", [(uri,) for uri in uris]
        )

    async def done(self, uris: Iterable[str]) -> None:
        """Forgets what is removed."""
        await self._connection.executemany("DELETE FROM removals WHERE uri = ?", [(uri,) for uri in uris])

    async def add_runs_of(self, job_key: int) -> None:
        """Notes the runs of a job that its trainers may have; before the job is deleted."""
        await self._connection.execute(
            "INSERT OR IGNORE INTO run_removals SELECT id, trainer_id FROM runs "
            "WHERE job_key = ? AND phase <> 'forgotten'",
            (job_key,),
        )

    async def runs(self, trainer_id: str) -> builtins.list[str]:
        """Ids of the runs of deleted jobs that this trainer may have."""
        rows = await self._connection.execute_fetchall(
            "SELECT run_id FROM run_removals WHERE trainer_id = ? ORDER BY run_id", (trainer_id,)
        )
        return [row[0] for row in rows]

    async def run_is_gone(self, run_id: str) -> None:
        """Forgets a run that its trainer has no more."""
        await self._connection.execute("DELETE FROM run_removals WHERE run_id = ?", (run_id,))
