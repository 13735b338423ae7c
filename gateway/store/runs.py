"""Runs, the attempts of jobs, and which entries of their journals are stored."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

import aiosqlite

from gateway.store._times import from_micros, to_micros
from gateway.store.attempts import Segment, line_of
from plaudit.types.statuses import RunState


class RunPhase(StrEnum):
    """How far the gateway and a trainer have come with a run."""

    ASSIGNED = "assigned"
    """The intent is stored; StartRun may have arrived, or not."""
    STARTED = "started"
    """The trainer has it."""
    ENDED = "ended"
    """Its terminal entry is stored; DeleteRun was not confirmed."""
    FORGOTTEN = "forgotten"
    """Nothing is left to do."""


@dataclass(frozen=True, slots=True)
class RunRecord:
    """A run: one attempt of a job on one trainer. `state` is its journal's newest, None: no entry yet."""

    key: int
    id: str
    job_key: int
    attempt: int
    trainer_id: str
    from_step: int
    checkpoint_uri: str
    spec_json: str
    phase: RunPhase
    state: RunState | None
    last_sequence: int
    created_at: datetime


_SELECT: Final = (
    "SELECT key, id, job_key, attempt, trainer_id, from_step, checkpoint_uri, spec, phase, state, "
    "last_sequence, created_at FROM runs"
)


class Runs:
    """Reads and writes runs on one connection."""

    def __init__(self, connection: aiosqlite.Connection) -> None:
        self._connection = connection

    async def find(self, run_id: str) -> RunRecord | None:
        """The run with this id, or None."""
        records = await self._all("id = ?", (run_id,))
        return records[0] if records else None

    async def of_attempt(self, job_key: int, attempt: int) -> RunRecord | None:
        """The run that was this attempt of a job, or None."""
        records = await self._all("job_key = ? AND attempt = ?", (job_key, attempt))
        return records[0] if records else None

    async def current(self) -> list[RunRecord]:
        """The runs that jobs go by."""
        return await self._all("id IN (SELECT run_id FROM jobs WHERE run_id IS NOT NULL)", ())

    async def open(self, trainer_id: str) -> list[RunRecord]:
        """The runs of a trainer that are not forgotten, oldest first."""
        return await self._all("trainer_id = ? AND phase <> 'forgotten'", (trainer_id,))

    async def line(self, job_key: int) -> list[Segment]:
        """Which steps of which attempt count."""
        rows = await self._connection.execute_fetchall(
            "SELECT attempt, from_step FROM runs WHERE job_key = ?", (job_key,)
        )
        return line_of((row[0], row[1]) for row in rows)

    async def insert(
        self,
        run_id: str,
        *,
        job_key: int,
        attempt: int,
        trainer_id: str,
        from_step: int,
        checkpoint_uri: str,
        spec_json: str,
        created_at: datetime,
    ) -> None:
        """Adds a run in phase ASSIGNED."""
        await self._connection.execute(
            "INSERT INTO runs (id, job_key, attempt, trainer_id, from_step, checkpoint_uri, spec, phase, "
            "last_sequence, created_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, 0, ?)",
            (
                run_id,
                job_key,
                attempt,
                trainer_id,
                from_step,
                checkpoint_uri,
                spec_json,
                RunPhase.ASSIGNED,
                to_micros(created_at),
            ),
        )

    async def set_phase(self, run_id: str, phase: RunPhase) -> None:
        """Moves a run on."""
        await self._connection.execute("UPDATE runs SET phase = ? WHERE id = ?", (phase, run_id))

    async def append_journal(
        self, run: RunRecord, entries: Sequence[tuple[int, str, datetime]], state: RunState | None
    ) -> None:
        """Notes (sequence, kind, time) of new entries, the newest last, and the state after them.

        An entry that is stored already raises sqlite3.IntegrityError: the transaction must not count it
        twice.
        """
        await self._connection.executemany(
            "INSERT INTO journal VALUES (?, ?, ?, ?)",
            [(run.key, sequence, kind, to_micros(time)) for sequence, kind, time in entries],
        )
        await self._connection.execute(
            "UPDATE runs SET last_sequence = ?, state = ? WHERE key = ?", (entries[-1][0], state, run.key)
        )

    async def _all(self, where: str, parameters: Iterable[Any]) -> list[RunRecord]:
        rows = await self._connection.execute_fetchall(
            f"{_SELECT} WHERE {where} ORDER BY key", tuple(parameters)
        )
        return [
            RunRecord(
                key=row[0],
                id=row[1],
                job_key=row[2],
                attempt=row[3],
                trainer_id=row[4],
                from_step=row[5],
                checkpoint_uri=row[6],
                spec_json=row[7],
                phase=RunPhase(row[8]),
                state=None if row[9] is None else RunState(row[9]),
                last_sequence=row[10],
                created_at=from_micros(row[11]),
            )
            for row in rows
        ]
