"""Tokens of those who may call the gateway. Secrets are not here: only their digests."""

from __future__ import annotations

import builtins
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import aiosqlite

from gateway.store._times import from_micros, optional_from_micros, optional_to_micros, to_micros
from plaudit.types.roles import Role


@dataclass(frozen=True, slots=True)
class StoredToken:
    """A token. `digest` is the SHA-256 of its secret; `created_by` the name of the token that made it, ""
    where there was none; `last_used_at` is to the minute.
    """

    id: str
    name: str
    role: Role
    digest: bytes
    created_at: datetime
    expires_at: datetime | None
    created_by: str
    last_used_at: datetime | None = None


_SELECT: Final = "SELECT id, name, role, digest, created_at, expires_at, created_by, last_used_at FROM tokens"


class Tokens:
    """Reads and writes tokens on one connection."""

    def __init__(self, connection: aiosqlite.Connection) -> None:
        self._connection = connection

    async def find(self, id_or_name: str) -> StoredToken | None:
        """The token with this id or name, or None."""
        found = await self._all("WHERE id = ? OR name = ? LIMIT 1", (id_or_name, id_or_name))
        return found[0] if found else None

    async def find_by_digest(self, digest: bytes) -> StoredToken | None:
        """The token whose secret has this digest, or None."""
        found = await self._all("WHERE digest = ?", (digest,))
        return found[0] if found else None

    async def list(self) -> builtins.list[StoredToken]:
        """Every token, newest first."""
        return await self._all("ORDER BY id DESC", ())

    async def insert(self, token: StoredToken) -> None:
        """Adds a token. A taken name is an sqlite3.IntegrityError: look first."""
        await self._connection.execute(
            "INSERT INTO tokens (id, name, role, digest, created_at, expires_at, created_by) "
            "VALUES (?, ?, ?, ?, ?, ?, ?)",
            (
                token.id,
                token.name,
                token.role.value,
                token.digest,
                to_micros(token.created_at),
                optional_to_micros(token.expires_at),
                token.created_by,
            ),
        )

    async def delete(self, token_id: str) -> None:
        """Removes the token; one that is not there is removed already."""
        await self._connection.execute("DELETE FROM tokens WHERE id = ?", (token_id,))

    async def note_used(self, times: Mapping[str, datetime]) -> None:
        """Keeps when tokens, by id, were last used."""
        await self._connection.executemany(
            "UPDATE tokens SET last_used_at = ? WHERE id = ?",
            [(to_micros(time), token_id) for token_id, time in times.items()],
        )

    async def _all(self, where: str, parameters: tuple[Any, ...]) -> builtins.list[StoredToken]:
        rows = await self._connection.execute_fetchall(f"{_SELECT} {where}", parameters)
        return [
            StoredToken(
                row[0],
                row[1],
                Role(row[2]),
                row[3],
                from_micros(row[4]),
                optional_from_micros(row[5]),
                row[6],
                optional_from_micros(row[7]),
            )
            for row in rows
        ]
