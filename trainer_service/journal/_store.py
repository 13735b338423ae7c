"""A run's journal: what happened, in order, on disk before anybody is told of it.

One SQLite file per run. Sequence numbers start at 1 and have no gaps; the last entry of a journal is a
`RunStateChanged` with a terminal state. One writer at a time: the service before the run's process starts and
after it is dead, the process in between. Readers never hold up the writer (WAL).
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Final, Literal, Self

import structlog

from plaudit.errors import UnavailableError
from plaudit.service import private_file
from plaudit.types.statuses import RunState
from trainer_service.journal._encoding import KINDS, decode, encode, is_terminal
from trainer_service.journal._entries import (
    CheckpointSaved,
    JournalEntry,
    RunError,
    RunStateChanged,
    StepCompleted,
)

log = structlog.get_logger(__name__)

_FILE_NAME: Final = "journal.sqlite3"
_BUSY_TIMEOUT_SECONDS: Final = 5.0
_TERMINAL_PATIENCE_SECONDS: Final = 60.0
_MAX_HELD_ENTRIES: Final = 1_000
_MICROSECONDS: Final = 1_000_000

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS entries (
  sequence INTEGER PRIMARY KEY,
  written_at INTEGER NOT NULL, -- microseconds since 1970, UTC
  kind TEXT NOT NULL,
  body TEXT NOT NULL -- JSON; NaN and Infinity are written as Python writes them
);
CREATE INDEX IF NOT EXISTS entries_by_kind ON entries (kind, sequence);
"""


@dataclass(frozen=True, slots=True)
class JournalRecord:
    """An entry with its place in the journal and the time, UTC, at which it was written."""

    sequence: int
    written_at: datetime
    entry: JournalEntry

    @property
    def is_terminal(self) -> bool:
        """Whether the journal ends with this entry."""
        return is_terminal(self.entry)


@dataclass(frozen=True, slots=True)
class JournalSnapshot:
    """What a journal says of its run up to `last_sequence`. `total_steps` 0: not known yet."""

    last_sequence: int
    state: RunState
    error: RunError | None
    step: int
    total_steps: int


@dataclass(frozen=True, slots=True)
class Finish:
    """The last step of a run whose training is done, and whether the journal tells what came of its model."""

    step: int
    told_of_model: bool


class JournalError(Exception):
    """The journal cannot be written or read, and trying again will not help."""


class JournalWriter:
    """The one writer of a run's journal. Any thread may append; close it before another writer opens."""

    def __init__(self, run_dir: Path) -> None:
        """Opens the journal in `run_dir`, or makes an empty one. Raises JournalError where it cannot."""
        self._lock = threading.Lock()
        try:
            private_file(run_dir / _FILE_NAME)
            self._connection = _connect(run_dir / _FILE_NAME, mode="rwc")
            self._connection.execute("PRAGMA journal_mode=WAL")
            self._connection.execute("PRAGMA synchronous=FULL")
            self._connection.executescript(_SCHEMA)
            self._committed: int = _last_sequence(self._connection)
            state = _newest(self._connection, "state_changed")
        except sqlite3.Error as error:
            raise JournalError(f"the journal cannot be opened: {error}") from error
        self._ended = state is not None and is_terminal(state)
        self._held: list[tuple[int, str, str]] = []

    def append(self, entry: JournalEntry) -> int:
        """Commits one entry to disk and returns its sequence number; see `append_all`."""
        return self.append_all([entry])

    def append_all(self, entries: Sequence[JournalEntry]) -> int:
        """Commits entries, in order and all in one transaction, and returns the last one's sequence number.

        Where the database is locked or the disk is full the entries are held, the number is the one that
        they will have, and they are written before the next: a step that was trained is not lost over it.
        Raises JournalError after a terminal entry, for a terminal entry that could not be written within a
        minute, and where more than 1,000 entries are held.
        """
        written_at = time.time_ns() // 1_000
        with self._lock:
            for entry in entries:
                if self._ended:
                    raise JournalError(f"the journal has ended, and takes no {KINDS[type(entry)]} any more")
                self._held.append((written_at, KINDS[type(entry)], encode(entry)))
                self._ended = is_terminal(entry)
            self._write_held()
            return self._committed + len(self._held)

    def close(self) -> None:
        """Writes what is held, if it can, and closes the file."""
        with self._lock:
            try:
                if self._held:
                    self._write_held()
            except JournalError as error:
                log.error("journal entries are lost", lost=len(self._held), error=str(error))
            finally:
                self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _write_held(self) -> None:
        give_up = time.monotonic() + _TERMINAL_PATIENCE_SECONDS
        while True:
            try:
                self._commit_held()
                return
            except sqlite3.OperationalError as error:
                if self._connection.in_transaction:
                    self._connection.rollback()
                if self._ended and time.monotonic() < give_up:
                    time.sleep(0.2)
                    continue
                if self._ended or len(self._held) > _MAX_HELD_ENTRIES:
                    raise JournalError(f"the journal cannot be written: {error}") from error
                log.warning("journal entries are held", held=len(self._held), error=str(error))
                return
            except sqlite3.Error as error:
                raise JournalError(f"the journal is damaged: {error}") from error

    def _commit_held(self) -> None:
        self._connection.execute("BEGIN IMMEDIATE")
        newest = _last_sequence(self._connection)
        if newest != self._committed:
            self._connection.rollback()
            raise JournalError(
                f"the journal has {newest} entries where this writer left {self._committed}: "
                "somebody else writes to it"
            )
        self._connection.executemany(
            "INSERT INTO entries (sequence, written_at, kind, body) VALUES (?, ?, ?, ?)",
            ((newest + offset, *row) for offset, row in enumerate(self._held, start=1)),
        )
        self._connection.commit()
        self._committed += len(self._held)
        self._held.clear()


class JournalReader:
    """Reads a journal while it is written. Calls block: from an event loop, make them in a thread.

    Every method raises UnavailableError where the file cannot be read now, and JournalError where it is
    damaged.
    """

    def __init__(self, run_dir: Path) -> None:
        """Opens the journal in `run_dir`; raises FileNotFoundError where there is none."""
        path = run_dir / _FILE_NAME
        self._lock = threading.Lock()
        try:
            self._connection = _connect(path, mode="rw")
        except sqlite3.OperationalError as error:
            raise FileNotFoundError(path) from error
        self._connection.execute("PRAGMA query_only=ON")

    def read_after(self, sequence: int, limit: int) -> list[JournalRecord]:
        """The entries beyond `sequence`, oldest first, at most `limit` of them."""
        with self._lock, _reading():
            rows = self._connection.execute(
                "SELECT sequence, written_at, kind, body FROM entries"
                " WHERE sequence > ? ORDER BY sequence LIMIT ?",
                (sequence, limit),
            ).fetchall()
        return [
            JournalRecord(number, datetime.fromtimestamp(written_at / _MICROSECONDS, UTC), decode(kind, body))
            for number, written_at, kind, body in rows
        ]

    def snapshot(self) -> JournalSnapshot:
        """What the journal says now; a run that has no entry yet is starting."""
        with self._lock, _reading():
            self._connection.execute("BEGIN")
            try:
                last_sequence = _last_sequence(self._connection)
                state = _newest(self._connection, "state_changed")
                step = _newest(self._connection, "step_completed")
            finally:
                self._connection.rollback()
        return JournalSnapshot(
            last_sequence=last_sequence,
            state=state.state if isinstance(state, RunStateChanged) else RunState.STARTING,
            error=state.error if isinstance(state, RunStateChanged) else None,
            step=step.step if isinstance(step, StepCompleted) else 0,
            total_steps=step.total_steps if isinstance(step, StepCompleted) else 0,
        )

    def finish(self) -> Finish | None:
        """How far a run is whose training is done: every step, and the checkpoint of the last; else None."""
        with self._lock, _reading():
            step = _newest(self._connection, "step_completed")
            checkpoint = _newest(self._connection, "checkpoint_saved")
            model = _newest(self._connection, "model_exported")
        if not isinstance(step, StepCompleted) or not isinstance(checkpoint, CheckpointSaved):
            return None
        if not step.step == step.total_steps == checkpoint.step:
            return None
        return Finish(step.step, told_of_model=model is not None)

    def close(self) -> None:
        """Closes the file."""
        with self._lock:
            self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


@contextmanager
def _reading() -> Iterator[None]:
    try:
        yield
    except sqlite3.OperationalError as error:
        raise UnavailableError(
            f"the journal cannot be read now ({error}); ask again", retry_after=1.0
        ) from error
    except sqlite3.Error as error:
        raise JournalError(f"the journal is damaged: {error}") from error


def _connect(path: Path, mode: Literal["rw", "rwc"]) -> sqlite3.Connection:
    return sqlite3.connect(
        f"{path.absolute().as_uri()}?mode={mode}",
        uri=True,
        timeout=_BUSY_TIMEOUT_SECONDS,
        isolation_level=None,
        check_same_thread=False,
    )


def _last_sequence(connection: sqlite3.Connection) -> int:
    newest: int = connection.execute("SELECT COALESCE(MAX(sequence), 0) FROM entries").fetchone()[0]
    return newest


def _newest(connection: sqlite3.Connection, kind: str) -> JournalEntry | None:
    row = connection.execute(
        "SELECT body FROM entries WHERE kind = ? ORDER BY sequence DESC LIMIT 1", (kind,)
    ).fetchone()
    return None if row is None else decode(kind, row[0])
