"""What jobs start from, in the store."""

from __future__ import annotations

from collections.abc import Sequence

import aiosqlite

from plaudit.types.jobs import InitCheckpoint


class InitCheckpoints:
    """Reads and writes the checkpoints that jobs start from on one connection."""

    def __init__(self, connection: aiosqlite.Connection) -> None:
        self._connection = connection

    async def of(self, job_key: int) -> tuple[InitCheckpoint, ...]:
        """Those of a job, in the order in which they are put onto the base model."""
        rows = await self._connection.execute_fetchall(
            "SELECT uri, on_four_bits FROM init_checkpoints WHERE job_key = ? ORDER BY position", (job_key,)
        )
        return tuple(InitCheckpoint(uri=row[0], on_four_bits=bool(row[1])) for row in rows)

    async def insert(self, job_key: int, checkpoints: Sequence[InitCheckpoint]) -> None:
        """Adds those of a new job."""
        await self._connection.executemany(
            "INSERT INTO init_checkpoints VALUES (?, ?, ?, ?)",
            [(job_key, position, c.uri, int(c.on_four_bits)) for position, c in enumerate(checkpoints)],
        )
