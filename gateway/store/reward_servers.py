"""Registered reward servers in the store."""

from __future__ import annotations

import builtins
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import aiosqlite

from gateway.store._times import from_micros, to_micros
from plaudit.types.access import OPEN_TO_ALL, ServerAccess


@dataclass(frozen=True, slots=True)
class RegisteredRewardServer:
    """A reward server that jobs may name. `addresses` are host:port, one a replica; `access` names secrets,
    and holds none.

    `configured` is true for one that the gateway's settings name: it can not be deleted by a call.
    """

    id: str
    name: str
    addresses: tuple[str, ...]
    configured: bool
    created_at: datetime
    access: ServerAccess = OPEN_TO_ALL


@dataclass(frozen=True, slots=True)
class SeenReplica:
    """What a replica last said of itself: its version, and by name a digest of each reward's description."""

    version: str
    rewards: Mapping[str, str]


_SELECT: Final = "SELECT id, name, addresses, configured, created_at, access FROM reward_servers"


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
            "INSERT INTO reward_servers (id, name, addresses, configured, created_at, access) "
            "VALUES (?, ?, ?, ?, ?, ?)",
            (
                server.id,
                server.name,
                json.dumps(server.addresses),
                int(server.configured),
                to_micros(server.created_at),
                server.access.model_dump_json(),
            ),
        )

    async def update(self, server: RegisteredRewardServer) -> None:
        """Replaces addresses, `configured` and access of the server with this id."""
        await self._connection.execute(
            "UPDATE reward_servers SET addresses = ?, configured = ?, access = ? WHERE id = ?",
            (
                json.dumps(server.addresses),
                int(server.configured),
                server.access.model_dump_json(),
                server.id,
            ),
        )

    async def delete(self, server_id: str) -> None:
        """Removes the server; one that is not there is removed already."""
        await self._connection.execute("DELETE FROM reward_servers WHERE id = ?", (server_id,))

    async def seen_replicas(self, server_id: str) -> dict[str, SeenReplica]:
        """What the replicas of a server last said of themselves, by address."""
        rows = await self._connection.execute_fetchall(
            "SELECT address, version, rewards FROM reward_server_replicas WHERE server_id = ?", (server_id,)
        )
        return {row[0]: SeenReplica(row[1], json.loads(row[2])) for row in rows}

    async def note_replica(self, server_id: str, address: str, seen: SeenReplica) -> None:
        """Keeps what a replica says of itself now."""
        await self._connection.execute(
            "INSERT INTO reward_server_replicas (server_id, address, version, rewards) VALUES (?, ?, ?, ?) "
            "ON CONFLICT (server_id, address) DO UPDATE SET version = excluded.version, "
            "rewards = excluded.rewards",
            (server_id, address, seen.version, json.dumps(dict(seen.rewards))),
        )

    async def _all(self, where: str, parameters: tuple[Any, ...]) -> builtins.list[RegisteredRewardServer]:
        rows = await self._connection.execute_fetchall(f"{_SELECT} {where}", parameters)
        return [
            RegisteredRewardServer(
                row[0],
                row[1],
                tuple(json.loads(row[2])),
                bool(row[3]),
                from_micros(row[4]),
                ServerAccess.model_validate_json(row[5]),
            )
            for row in rows
        ]
