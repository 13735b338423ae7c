"""Where scored completions lie: indices of the files that trainers wrote."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import aiosqlite

from gateway.store.attempts import Segment, on_line


@dataclass(frozen=True, slots=True)
class CompletionFile:
    """A Parquet file at `uri`, relative to the artifact root: of completions sampled for `step`, or of the
    evaluation after it.
    """

    attempt: int
    step: int
    uri: str
    row_count: int
    size_bytes: int
    sha256: str


class CompletionFiles:
    """Reads and writes an index on one connection."""

    def __init__(
        self, connection: aiosqlite.Connection, table: Literal["completion_files", "evaluation_files"]
    ) -> None:
        """`table` says of which files: those of steps, or those of evaluations."""
        self._connection = connection
        self._table = table

    async def insert(self, job_key: int, file: CompletionFile) -> None:
        """Adds a file, or replaces that of the same attempt and step."""
        await self._connection.execute(
            f"INSERT OR REPLACE INTO {self._table} VALUES (?, ?, ?, ?, ?, ?, ?)",  # noqa: S608
            (job_key, file.attempt, file.step, file.uri, file.row_count, file.size_bytes, file.sha256),
        )

    async def on_line(
        self, job_key: int, line: Sequence[Segment], *, step: int | None = None, through: int | None = None
    ) -> list[CompletionFile]:
        """The files not superseded, newest step first; of one `step`, or of those up to `through`."""
        rows = await self._connection.execute_fetchall(
            f"SELECT attempt, step, uri, row_count, size_bytes, sha256 FROM {self._table} "  # noqa: S608
            "WHERE job_key = ? AND (? IS NULL OR step = ?) AND (? IS NULL OR step <= ?) ORDER BY step DESC",
            (job_key, step, step, through, through),
        )
        files = [CompletionFile(*row) for row in rows]
        return [file for file in files if on_line(line, file.attempt, file.step)]
