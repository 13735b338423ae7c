"""Datasets in the store."""

from __future__ import annotations

import builtins
import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import aiosqlite

from gateway.store._times import from_micros, to_micros
from plaudit.types.dataset_sources import DatasetSource


@dataclass(frozen=True, slots=True)
class StoredDataset:
    """A dataset whose file lies under the artifact root.

    `source_type` is "upload", "builtin", "hf" or "path", the latter two from `source`; `columns` are those
    besides the prompt, in order of appearance; `methods` the training methods that every row serves; `uri` is
    relative to the artifact root; `sha256` (hex) and `size_bytes` are those of the stored file.
    """

    id: str
    name: str
    source_type: str
    row_count: int
    columns: tuple[str, ...]
    methods: tuple[str, ...]
    size_bytes: int
    sha256: str
    uri: str
    created_at: datetime
    source: DatasetSource | None = None


_SELECT: Final = (
    "SELECT id, name, source_type, row_count, columns, methods, size_bytes, sha256, uri, created_at, source "
    "FROM datasets"
)


class Datasets:
    """Reads and writes datasets on one connection."""

    def __init__(self, connection: aiosqlite.Connection) -> None:
        self._connection = connection

    async def find(self, id_or_name: str) -> StoredDataset | None:
        """The dataset with this id, else the one with this name, else None."""
        found = await self._all(
            "WHERE id = ? OR name = ? ORDER BY id <> ? LIMIT 1", (id_or_name, id_or_name, id_or_name)
        )
        return found[0] if found else None

    async def list(self, *, limit: int, after: str | None = None) -> builtins.list[StoredDataset]:
        """At most `limit` datasets, newest first, those stored before the one with the id `after`, which must
        be there: else there are none.
        """
        return await self._all(
            "WHERE ? IS NULL OR key < (SELECT key FROM datasets WHERE id = ?) ORDER BY key DESC LIMIT ?",
            (after, after, limit),
        )

    async def insert(self, dataset: StoredDataset) -> None:
        """Adds a dataset. A taken id or name is an sqlite3.IntegrityError: look first."""
        await self._connection.execute(
            "INSERT INTO datasets "
            "(id, name, source_type, row_count, columns, methods, size_bytes, sha256, uri, created_at, "
            "source) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                dataset.id,
                dataset.name,
                dataset.source_type,
                dataset.row_count,
                json.dumps(dataset.columns),
                json.dumps(dataset.methods),
                dataset.size_bytes,
                dataset.sha256,
                dataset.uri,
                to_micros(dataset.created_at),
                dataset.source.model_dump_json() if dataset.source else None,
            ),
        )

    async def delete(self, dataset_id: str) -> None:
        """Removes the dataset; one that is not there is removed already."""
        await self._connection.execute("DELETE FROM datasets WHERE id = ?", (dataset_id,))

    async def _all(self, where: str, parameters: tuple[Any, ...]) -> builtins.list[StoredDataset]:
        rows = await self._connection.execute_fetchall(f"{_SELECT} {where}", parameters)
        return [
            StoredDataset(
                id=row[0],
                name=row[1],
                source_type=row[2],
                row_count=row[3],
                columns=tuple(json.loads(row[4])),
                methods=tuple(json.loads(row[5])),
                size_bytes=row[6],
                sha256=row[7],
                uri=row[8],
                created_at=from_micros(row[9]),
                source=DatasetSource.model_validate_json(row[10]) if row[10] else None,
            )
            for row in rows
        ]
