"""Functions that score, in the store."""

from __future__ import annotations

import builtins
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal, TypeAlias

import aiosqlite

from gateway.store._times import from_micros, to_micros

FunctionFormat: TypeAlias = Literal["trl", "miles"]


@dataclass(frozen=True, slots=True)
class RewardFunction:
    """A Python file with a function that scores. Names are not unique: the newest goes by the name.

    `format` says how the function is called; `sha256` (hex) is that of `source` in UTF-8.
    """

    id: str
    name: str
    format: FunctionFormat
    filename: str
    source: str
    sha256: str
    created_at: datetime

    @property
    def size_bytes(self) -> int:
        """Size of the source in UTF-8."""
        return len(self.source.encode("utf-8"))


@dataclass(frozen=True, slots=True)
class KnownFunctionRequest:
    """A request that was answered with a function, None where that was deleted since.

    `asked_sha256` is the digest of what it asked for.
    """

    function: RewardFunction | None
    function_id: str
    asked_sha256: str


_SELECT: Final = "SELECT id, name, format, filename, source, sha256, created_at FROM reward_functions"


class RewardFunctions:
    """Reads and writes reward functions on one connection."""

    def __init__(self, connection: aiosqlite.Connection) -> None:
        self._connection = connection

    async def find(self, id_or_name: str) -> RewardFunction | None:
        """The function with this id, else the newest one with this name, else None."""
        found = await self._all(
            "WHERE id = ? OR name = ? ORDER BY id <> ?, key DESC LIMIT 1",
            (id_or_name, id_or_name, id_or_name),
        )
        return found[0] if found else None

    async def find_content(self, name: str, file_format: str, sha256: str) -> RewardFunction | None:
        """The function with this name, format and content, or None."""
        found = await self._all("WHERE name = ? AND format = ? AND sha256 = ?", (name, file_format, sha256))
        return found[0] if found else None

    async def list(self, *, limit: int, after: str | None = None) -> builtins.list[RewardFunction]:
        """At most `limit` functions, newest first, those stored before the one with the id `after`, which
        must be there: else there are none.
        """
        return await self._all(
            "WHERE ? IS NULL OR key < (SELECT key FROM reward_functions WHERE id = ?) "
            "ORDER BY key DESC LIMIT ?",
            (after, after, limit),
        )

    async def count(self) -> int:
        """How many there are."""
        rows = builtins.list(await self._connection.execute_fetchall("SELECT count(*) FROM reward_functions"))
        return int(rows[0][0])

    async def insert(self, function: RewardFunction) -> None:
        """Adds a function. A taken id is an sqlite3.IntegrityError: look first."""
        await self._connection.execute(
            "INSERT INTO reward_functions (id, name, format, filename, source, sha256, created_at) "
            "VALUES (?, ?, ?, ?, ?, ?, ?)",
            (
                function.id,
                function.name,
                function.format,
                function.filename,
                function.source,
                function.sha256,
                to_micros(function.created_at),
            ),
        )

    async def delete(self, function_id: str) -> None:
        """Removes the function; one that is not there is removed already."""
        await self._connection.execute("DELETE FROM reward_functions WHERE id = ?", (function_id,))

    async def find_request(self, request_id: str, *, since: datetime) -> KnownFunctionRequest | None:
        """What the request with this id, made after `since`, was answered with; or None."""
        rows = builtins.list(
            await self._connection.execute_fetchall(
                "SELECT function_id, asked_sha256 FROM reward_function_requests "
                "WHERE request_id = ? AND created_at > ?",
                (request_id, to_micros(since)),
            )
        )
        if not rows:
            return None
        function_id, asked_sha256 = rows[0]
        found = await self._all("WHERE id = ?", (function_id,))
        return KnownFunctionRequest(found[0] if found else None, function_id, asked_sha256)

    async def note_request(
        self,
        request_id: str,
        function: RewardFunction,
        asked_sha256: str,
        created_at: datetime,
        *,
        since: datetime,
    ) -> None:
        """Remembers a request, and forgets those made before `since`."""
        await self._connection.execute(
            "DELETE FROM reward_function_requests WHERE created_at <= ?", (to_micros(since),)
        )
        await self._connection.execute(
            "INSERT OR REPLACE INTO reward_function_requests "
            "SELECT ?, key, id, ?, ? FROM reward_functions WHERE id = ?",
            (request_id, asked_sha256, to_micros(created_at), function.id),
        )

    async def _all(self, where: str, parameters: tuple[Any, ...]) -> builtins.list[RewardFunction]:
        rows = await self._connection.execute_fetchall(f"{_SELECT} {where}", parameters)
        return [
            RewardFunction(row[0], row[1], row[2], row[3], row[4], row[5], from_micros(row[6]))
            for row in rows
        ]
