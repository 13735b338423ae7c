"""Requests that may be repeated safely."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

import aiosqlite

from gateway.store._times import to_micros


@dataclass(frozen=True, slots=True)
class KnownRequest:
    """A request that was answered with a job; `job_key` is None where the job was deleted since."""

    job_key: int | None
    job_id: str
    spec_sha256: str


class Requests:
    """Reads and writes request ids on one connection."""

    def __init__(self, connection: aiosqlite.Connection) -> None:
        self._connection = connection

    async def find(self, request_id: str, *, since: datetime) -> KnownRequest | None:
        """The request with this id, where it was made after `since`."""
        rows = list(
            await self._connection.execute_fetchall(
                "SELECT job_key, job_id, spec_sha256 FROM requests WHERE request_id = ? AND created_at > ?",
                (request_id, to_micros(since)),
            )
        )
        return KnownRequest(*rows[0]) if rows else None

    async def insert(self, request_id: str, request: KnownRequest, created_at: datetime) -> None:
        """Remembers a request; replaces one of the same id that is too old to count."""
        await self._connection.execute(
            "INSERT OR REPLACE INTO requests VALUES (?, ?, ?, ?, ?)",
            (request_id, request.job_key, request.job_id, request.spec_sha256, to_micros(created_at)),
        )

    async def prune(self, *, before: datetime) -> None:
        """Forgets the requests made before."""
        await self._connection.execute("DELETE FROM requests WHERE created_at <= ?", (to_micros(before),))
