"""What a trainer remembers beyond its runs: its name, cancelled run ids, and the newest attempt of jobs."""

from __future__ import annotations

import sqlite3
import threading
import time
import uuid
from pathlib import Path
from typing import Any, Final

from plaudit.errors import UnavailableError
from plaudit.service import private_file

CANCELLED_KEPT_SECONDS: Final = 24 * 3600.0
"""How long the cancel of a run is remembered, so that a StartRun that comes late starts nothing."""

ATTEMPTS_KEPT_SECONDS: Final = 90 * 24 * 3600.0
"""How long the newest attempt of a job is remembered after its last StartRun."""

_SCHEMA: Final = (
    "CREATE TABLE IF NOT EXISTS trainer (trainer_id TEXT NOT NULL)",
    # Times are seconds since 1970.
    "CREATE TABLE IF NOT EXISTS cancelled (run_id TEXT PRIMARY KEY, at REAL NOT NULL)",
    "CREATE TABLE IF NOT EXISTS attempts"
    " (job_id TEXT PRIMARY KEY, attempt INTEGER NOT NULL, at REAL NOT NULL)",
)


class LedgerError(UnavailableError):
    """The ledger cannot be read or written now, as on a full disk."""


class Ledger:
    """A small SQLite file. Calls block, are on disk when they return, and raise LedgerError."""

    def __init__(self, path: Path) -> None:
        self._lock = threading.Lock()
        private_file(path)
        self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._execute("PRAGMA journal_mode=WAL")
        self._execute("PRAGMA synchronous=FULL")
        for statement in _SCHEMA:
            self._execute(statement)
        self.trainer_id = self._named()

    def remember_cancelled(self, run_id: str) -> None:
        """Remembers that a run was cancelled, whether it is known or not; forgets what is too old."""
        now = time.time()
        self._execute("INSERT OR REPLACE INTO cancelled VALUES (?, ?)", run_id, now)
        self._execute("DELETE FROM cancelled WHERE at < ?", now - CANCELLED_KEPT_SECONDS)

    def is_cancelled(self, run_id: str) -> bool:
        """Whether a run was cancelled within the last 24 hours."""
        oldest = time.time() - CANCELLED_KEPT_SECONDS
        return (
            self._execute("SELECT 1 FROM cancelled WHERE run_id = ? AND at >= ?", run_id, oldest) is not None
        )

    def remember_attempt(self, job_id: str, attempt: int) -> None:
        """Remembers an attempt of a job where it is the newest; forgets what is too old."""
        now = time.time()
        self._execute(
            "INSERT INTO attempts VALUES (?, ?, ?) ON CONFLICT (job_id) DO UPDATE"
            " SET attempt = max(attempt, excluded.attempt), at = excluded.at",
            *(job_id, attempt, now),
        )
        self._execute("DELETE FROM attempts WHERE at < ?", now - ATTEMPTS_KEPT_SECONDS)

    def newest_attempt(self, job_id: str) -> int:
        """The highest attempt of a job that was started here; 0: none."""
        row = self._execute("SELECT attempt FROM attempts WHERE job_id = ?", job_id)
        return 0 if row is None else int(row[0])

    def close(self) -> None:
        """Closes the file."""
        with self._lock:
            self._connection.close()

    def _execute(self, statement: str, *parameters: object) -> tuple[Any, ...] | None:
        """Runs a statement, a transaction of its own, and returns the first row of its answer."""
        with self._lock:
            try:
                row: tuple[Any, ...] | None = self._connection.execute(statement, parameters).fetchone()
            except sqlite3.Error as error:
                raise LedgerError(f"the trainer's ledger cannot be used: {error}", retry_after=5.0) from error
        return row

    def _named(self) -> str:
        row = self._execute("SELECT trainer_id FROM trainer")
        if row is not None:
            return str(row[0])
        trainer_id = f"trainer_{uuid.uuid4().hex}"
        self._execute("INSERT INTO trainer VALUES (?)", trainer_id)
        return trainer_id
