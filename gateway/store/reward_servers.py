"""Registered reward servers in the store."""

from __future__ import annotations

import builtins
import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import aiosqlite

from gateway.store._times import from_micros, to_micros


@dataclass(frozen=True, slots=True)
class RegisteredRewardServer:
    """A reward server that jobs may name. `addresses` are host:port, one a replica.

    `configured` is true for one that the gateway's settings name: it can not be deleted by a call.
    """

    id: str
    name: str
    addresses: tuple[str, ...]
    configured: bool
    created_at: datetime


_SELECT: Final = "SELECT id, name, addresses, configured, created_at FROM reward_servers"


class RewardServers:
    """Reads and writes reward servers on one connection."""

    def __init__(self, connection: aiosqlite.Connection) -> None:
        self._connection = connection

    async def find(self, id_or_name: str) -> RegisteredRewardServer | None:
        """The server with this id, else the one with this name, else None."""
        found = await self._all(
            "WHERE id = ? OR name = ? ORDER BY id <> ? LIMIT 1", (id_or_name, id_or_name, id_or_name)
        )
        return found[0] if found else None

    async def list(self) -> builtins.list[RegisteredRewardServer]:
        """Every server, by name."""
        return await self._all("ORDER BY name", ())

    async def insert(self, server: RegisteredRewardServer) -> None:
        """Adds a server. A taken id or name is an sqlite3.IntegrityError: look first."""
        await self._connection.execute(
            "INSERT INTO reward_servers (id, name, addresses, configured, created_at) VALUES (?, ?, ?, ?, ?)",
            (
                server.id,
                server.name,
                json.dumps(server.addresses),
                int(server.configured),
                to_micros(server.created_at),
            ),
        )

    async def update(self, server: RegisteredRewardServer) -> None:
        """Replaces addresses and `configured` of the server with this id."""
        await self._connection.execute(
            "UPDATE reward_servers SET addresses = ?, configured = ? WHERE id = ?",
            (json.dumps(server.addresses), int(server.configured), server.id),
        )

    async def delete(self, server_id: str) -> None:
        """Removes the server; one that is not there is removed already."""
        await self._connection.execute("DELETE FROM reward_servers WHERE id = ?", (server_id,))

    async def _all(self, where: str, parameters: tuple[Any, ...]) -> builtins.list[RegisteredRewardServer]:
        rows = await self._connection.execute_fetchall(f"{_SELECT} {where}", parameters)
        return [
            RegisteredRewardServer(
                row[0], row[1], tuple(json.loads(row[2])), bool(row[3]), from_micros(row[4])
            )
            for row in rows
        ]
