"""Verdicts on disk: an identical question is asked once. A loss of the file costs calls, and nothing else."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import structlog

from plaudit.service import private_file

log = structlog.get_logger(__name__)

_VERSION: Final = 1
_SCHEMA: Final = f"""
BEGIN;
CREATE TABLE verdicts (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    key TEXT NOT NULL UNIQUE,
    verdict TEXT NOT NULL
) STRICT;
PRAGMA user_version = {_VERSION};
COMMIT;
"""
_MOST_AT_ONCE: Final = 500
_SPARE: Final = 0.05
"""Share of the cache that is freed when it is full."""


class VerdictCache:
    """Texts of verdicts by key, at most so many; those that were put first go first.

    Reads and writes that come together share one visit to the disk.
    """

    def __init__(self, path: Path, max_verdicts: int) -> None:
        """Opens the file; one that cannot be read is set aside, and told in the log."""
        self._path = path
        self._max = max_verdicts
        self._thread = ThreadPoolExecutor(1, "judge-cache")
        self._connection: sqlite3.Connection | None = None
        self._count = 0
        self._wanted: dict[str, asyncio.Future[str | None]] = {}
        self._fresh: dict[str, str] = {}
        self._visit: asyncio.Task[None] | None = None
        self._open()

    async def get(self, key: str) -> str | None:
        """The verdict, or None where there is none."""
        fresh = self._fresh.get(key)
        if fresh is not None or not self._max:
            return fresh
        wanted = self._wanted.get(key)
        if wanted is None:
            wanted = self._wanted[key] = asyncio.get_running_loop().create_future()
            self._plan_visit()
        found = await asyncio.shield(wanted)
        return found if found is not None else self._fresh.get(key)  # which may have come meanwhile

    def put(self, key: str, verdict: str) -> None:
        """Keeps a verdict."""
        if self._max:
            self._fresh[key] = verdict
            self._plan_visit()

    async def close(self) -> None:
        """Writes what is left."""
        while self._visit is not None:
            await self._visit
        self._thread.shutdown()
        if self._connection is not None:
            self._connection.close()

    def _plan_visit(self) -> None:
        if self._visit is None:
            self._visit = asyncio.create_task(self._visits())

    async def _visits(self) -> None:
        loop = asyncio.get_running_loop()
        while self._wanted or self._fresh:
            keys = list(self._wanted)[:_MOST_AT_ONCE]
            fresh = dict(self._fresh)
            try:
                found = await loop.run_in_executor(self._thread, self._work, keys, fresh)
            except Exception:
                # Whoever waits is not to wait for ever: it asks the judge.
                log.exception("the cache of verdicts failed")
                found = {}
            for key in keys:
                waiting = self._wanted.pop(key)
                if not waiting.done():
                    waiting.set_result(found.get(key))
            for key in fresh:
                self._fresh.pop(key, None)
        self._visit = None

    def _work(self, keys: Sequence[str], fresh: dict[str, str]) -> dict[str, str]:
        if self._connection is None:
            return {}
        try:
            if fresh:
                self._write(self._connection, fresh)
            marks = ",".join("?" * len(keys))
            query = f"SELECT key, verdict FROM verdicts WHERE key IN ({marks})"  # noqa: S608  # question marks
            return dict(self._connection.execute(query, keys).fetchall()) if keys else {}
        except (sqlite3.OperationalError, sqlite3.IntegrityError) as error:
            # A full disk, say: the file is sound, and may work again.
            log.warning("the cache of verdicts could not be used", path=str(self._path), error=str(error))
        except sqlite3.DatabaseError as error:
            self._set_aside(error)
            self._open()
        return {}

    def _write(self, connection: sqlite3.Connection, fresh: dict[str, str]) -> None:
        with connection:
            connection.execute("BEGIN")
            before = connection.total_changes
            connection.executemany(
                "INSERT INTO verdicts (key, verdict) VALUES (?, ?) ON CONFLICT (key) DO NOTHING",
                fresh.items(),
            )
            self._count += connection.total_changes - before
            if self._count > self._max:
                excess = self._count - self._max + int(_SPARE * self._max)
                connection.execute(
                    "DELETE FROM verdicts WHERE number IN "
                    "(SELECT number FROM verdicts ORDER BY number LIMIT ?)",
                    (excess,),
                )
                self._count -= excess

    def _open(self) -> None:
        if not self._max:
            return
        for _ in range(2):
            try:
                self._connection, self._count = _opened(self._path)
                return
            except sqlite3.OperationalError as error:
                log.warning("no cache of verdicts", path=str(self._path), error=str(error))
                self._connection = None
                return
            except sqlite3.DatabaseError as error:
                self._set_aside(error)

    def _set_aside(self, error: Exception) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        aside = self._path.with_name(f"{self._path.name}.unreadable-{time.time_ns()}")
        log.warning(
            "the cache of verdicts cannot be read, and is set aside; judges are asked anew",
            path=str(self._path),
            aside=str(aside),
            error=str(error),
        )
        try:
            self._path.rename(aside)
            for suffix in ("-wal", "-shm"):
                self._path.with_name(self._path.name + suffix).unlink(missing_ok=True)
        except OSError as problem:
            log.warning("it could not be set aside", error=str(problem))


def _opened(path: Path) -> tuple[sqlite3.Connection, int]:
    """A connection to the cache, made where it is not there, and the number of its verdicts."""
    private_file(path)
    connection = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if version == 0 and not connection.execute("SELECT 1 FROM sqlite_master").fetchone():
            connection.executescript(_SCHEMA)
        elif version != _VERSION:
            raise sqlite3.DatabaseError(f"it is of version {version}, and {_VERSION} is read here")
        (count,) = connection.execute("SELECT count(*) FROM verdicts").fetchone()
    except sqlite3.Error:
        connection.close()
        raise
    return connection, count
