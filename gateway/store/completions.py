"""Where scored completions lie: an index of the files that trainers wrote."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import aiosqlite

from gateway.store.attempts import Segment, on_line


@dataclass(frozen=True, slots=True)
class CompletionFile:
    """A Parquet file of completions sampled for `step`, at `uri` relative to the artifact root."""

    attempt: int
    step: int
    uri: str
    row_count: int
    size_bytes: int
    sha256: str


class CompletionFiles:
    """Reads and writes the index on one connection."""

    def __init__(self, connection: aiosqlite.Connection) -> None:
        self._connection = connection

    async def insert(self, job_key: int, file: CompletionFile) -> None:
        """Adds a file, or replaces that of the same attempt and step."""
        await self._connection.execute(
            "INSERT OR REPLACE INTO completion_files VALUES (?, ?, ?, ?, ?, ?, ?)",
            (job_key, file.attempt, file.step, file.uri, file.row_count, file.size_bytes, file.sha256),
        )

    async def on_line(
        self, job_key: int, line: Sequence[Segment], *, step: int | None = None, through: int | None = None
    ) -> list[CompletionFile]:
        """The files not superseded, newest step first; of one `step`, or of those up to `through`."""
        rows = await self._connection.execute_fetchall(
            "SELECT attempt, step, uri, row_count, size_bytes, sha256 FROM completion_files "
            "WHERE job_key = ? AND (? IS NULL OR step = ?) AND (? IS NULL OR step <= ?) ORDER BY step DESC",
            (job_key, step, step, through, through),
        )
        files = [CompletionFile(*row) for row in rows]
        return [file for file in files if on_line(line, file.attempt, file.step)]
