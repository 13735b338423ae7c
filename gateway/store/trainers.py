"""Trainers that were spoken with."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

import aiosqlite

from gateway.store._times import from_micros, to_micros


@dataclass(frozen=True, slots=True)
class KnownTrainer:
    """A trainer, by the id of its data directory, with the address and time of the last contact."""

    id: str
    address: str
    last_contact_at: datetime


class Trainers:
    """Reads and writes trainers on one connection."""

    def __init__(self, connection: aiosqlite.Connection) -> None:
        self._connection = connection

    async def find(self, trainer_id: str) -> KnownTrainer | None:
        """The trainer with this id, or None."""
        return next((trainer for trainer in await self.list() if trainer.id == trainer_id), None)

    async def list(self) -> list[KnownTrainer]:
        """Every trainer, by id."""
        rows = await self._connection.execute_fetchall(
            "SELECT id, address, last_contact_at FROM trainers ORDER BY id"
        )
        return [KnownTrainer(row[0], row[1], from_micros(row[2])) for row in rows]

    async def touch(self, trainer: KnownTrainer) -> None:
        """Notes a contact."""
        await self._connection.execute(
            "INSERT INTO trainers VALUES (?, ?, ?) ON CONFLICT (id) DO UPDATE SET "
            "address = excluded.address, last_contact_at = max(last_contact_at, excluded.last_contact_at)",
            (trainer.id, trainer.address, to_micros(trainer.last_contact_at)),
        )
