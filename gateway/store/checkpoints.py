"""Checkpoints in the store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import aiosqlite

from gateway.store._times import from_micros, optional_from_micros, to_micros
from gateway.store.attempts import Segment, on_line


@dataclass(frozen=True, slots=True)
class CheckpointRecord:
    """A checkpoint, in the folder `uri` relative to the artifact root; `removed_at` None: it is there."""

    attempt: int
    step: int
    uri: str
    size_bytes: int
    sha256: str
    saved_at: datetime
    removed_at: datetime | None = None


class Checkpoints:
    """Reads and writes checkpoints on one connection."""

    def __init__(self, connection: aiosqlite.Connection) -> None:
        self._connection = connection

    async def list(self, job_key: int) -> list[CheckpointRecord]:
        """Every checkpoint of a job, removed and superseded ones too, by attempt and step."""
        rows = await self._connection.execute_fetchall(
            "SELECT attempt, step, uri, size_bytes, sha256, saved_at, removed_at FROM checkpoints "
            "WHERE job_key = ? ORDER BY attempt, step",
            (job_key,),
        )
        return [
            CheckpointRecord(
                attempt=row[0],
                step=row[1],
                uri=row[2],
                size_bytes=row[3],
                sha256=row[4],
                saved_at=from_micros(row[5]),
                removed_at=optional_from_micros(row[6]),
            )
            for row in rows
        ]

    async def find(self, job_key: int, attempt: int, step: int) -> CheckpointRecord | None:
        """The checkpoint that an attempt took after a step, removed or not, or None."""
        stored = await self.list(job_key)
        return next((c for c in stored if (c.attempt, c.step) == (attempt, step)), None)

    async def newest(self, job_key: int, line: Sequence[Segment]) -> CheckpointRecord | None:
        """The newest checkpoint that is there and not superseded, or None."""
        usable = [
            c for c in await self.list(job_key) if c.removed_at is None and on_line(line, c.attempt, c.step)
        ]
        return max(usable, key=lambda c: c.step, default=None)

    async def insert(self, job_key: int, checkpoint: CheckpointRecord) -> None:
        """Adds a checkpoint, or replaces that of the same attempt and step."""
        await self._connection.execute(
            "INSERT OR REPLACE INTO checkpoints VALUES (?, ?, ?, ?, ?, ?, ?, NULL)",
            (
                job_key,
                checkpoint.attempt,
                checkpoint.step,
                checkpoint.uri,
                checkpoint.size_bytes,
                checkpoint.sha256,
                to_micros(checkpoint.saved_at),
            ),
        )

    async def mark_removed(self, job_key: int, uri: str, removed_at: datetime) -> None:
        """Notes that the checkpoint in this folder is gone."""
        await self._connection.execute(
            "UPDATE checkpoints SET removed_at = ? WHERE job_key = ? AND uri = ? AND removed_at IS NULL",
            (to_micros(removed_at), job_key, uri),
        )
