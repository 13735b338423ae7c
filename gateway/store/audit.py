"""The audit log: who changed what, or was not allowed to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import aiosqlite

from gateway.store._times import from_micros, to_micros
from plaudit.types.roles import Role


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """A call. `call` is a gRPC method or "POST /v1/path", `subject` the id of what it was about or "",
    `outcome` "ok" or the reason of its error. `number` counts up; 0: not stored yet.
    """

    time: datetime
    token_id: str
    caller: str
    role: Role
    peer: str
    call: str
    subject: str
    outcome: str
    number: int = 0


class Audit:
    """Reads and writes audit entries on one connection."""

    def __init__(self, connection: aiosqlite.Connection) -> None:
        self._connection = connection

    async def append(self, entries: Sequence[AuditEntry], *, keep: int) -> None:
        """Adds entries; all but the newest `keep` are forgotten."""
        await self._connection.executemany(
            "INSERT INTO audit (time, token_id, caller, role, peer, call, subject, outcome) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            [
                (to_micros(e.time), e.token_id, e.caller, e.role.value, e.peer, e.call, e.subject, e.outcome)
                for e in entries
            ],
        )
        await self._connection.execute(
            "DELETE FROM audit WHERE number <= (SELECT max(number) FROM audit) - ?", (keep,)
        )

    async def page(self, *, before: int | None, limit: int) -> list[AuditEntry]:
        """At most `limit` entries of a number below `before`, newest first. None: the newest."""
        rows = await self._connection.execute_fetchall(
            "SELECT time, token_id, caller, role, peer, call, subject, outcome, number FROM audit "
            "WHERE ? IS NULL OR number < ? ORDER BY number DESC LIMIT ?",
            (before, before, limit),
        )
        return [AuditEntry(from_micros(row[0]), row[1], row[2], Role(row[3]), *row[4:]) for row in rows]
