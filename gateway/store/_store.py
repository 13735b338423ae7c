"""The store's connections: one that writes, some that read."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final, TypeVar

import aiosqlite

from gateway.events import Event
from gateway.store._lanes import SCAN_BOUNDS, Lane, Reader
from gateway.store._migrations import migrate
from gateway.store.alerts import Alerts
from gateway.store.audit import Audit
from gateway.store.checkpoints import Checkpoints
from gateway.store.completions import CompletionFiles
from gateway.store.datasets import Datasets
from gateway.store.events import Events
from gateway.store.init_checkpoints import InitCheckpoints
from gateway.store.jobs import Jobs
from gateway.store.models import Models
from gateway.store.points import Points
from gateway.store.removals import Removals
from gateway.store.requests import Requests
from gateway.store.rescores import Rescores
from gateway.store.reward_functions import RewardFunctions
from gateway.store.reward_servers import RewardServers
from gateway.store.runs import Runs
from gateway.store.step_rows import StepRows
from gateway.store.tokens import Tokens
from gateway.store.trainers import Trainers
from plaudit.types.statuses import JobStatus

Result = TypeVar("Result")

STORE_FILE: Final = "gateway.sqlite3"
"""Name of the store in the gateway's state directory."""

_READERS: Final = 3
_SCANNERS: Final = 2
_LOG_READERS: Final = 2
_BUSY_TIMEOUT_MS: Final = 10_000


class Session:
    """The repositories, one a resource, on one connection and within one transaction."""

    def __init__(self, connection: aiosqlite.Connection, store_id: str) -> None:
        self.jobs = Jobs(connection)
        self.requests = Requests(connection)
        self.trainers = Trainers(connection)
        self.runs = Runs(connection)
        self.points = Points(connection)
        self.step_rows = StepRows(connection)
        self.alerts = Alerts(connection)
        self.checkpoints = Checkpoints(connection)
        self.completion_files = CompletionFiles(connection, "completion_files")
        self.evaluation_files = CompletionFiles(connection, "evaluation_files")
        self.events = Events(connection, store_id)
        self.datasets = Datasets(connection)
        self.reward_servers = RewardServers(connection)
        self.rescores = Rescores(connection)
        self.tokens = Tokens(connection)
        self.audit = Audit(connection)
        self.reward_functions = RewardFunctions(connection)
        self.removals = Removals(connection)
        self.models = Models(connection)
        self.init_checkpoints = InitCheckpoints(connection)


class Store:
    """The gateway's SQLite store.

    Everything that must be true together is written in one `transaction`; it is on disk (synchronous FULL)
    when that has been left without an error. Readers never wait for the writer, nor the writer for them
    (WAL).
    """

    def __init__(
        self,
        store_id: str,
        writer: aiosqlite.Connection,
        *,
        readers: Lane,
        scanners: Lane,
        log_readers: Lane,
    ) -> None:
        """Use `open`."""
        self.store_id = store_id
        self._writer = writer
        self._writing = asyncio.Lock()
        self._readers = readers
        self._scanners = scanners
        self._log_readers = log_readers
        self._listeners: list[Callable[[Sequence[Event]], None]] = []

    @classmethod
    @asynccontextmanager
    async def open(cls, path: Path) -> AsyncIterator[Store]:
        """Opens the store in the file `path`, which is made or migrated where needed, until the context
        ends.
        """
        await asyncio.to_thread(migrate, path)
        async with AsyncExitStack() as stack:
            writer = await stack.enter_async_context(aiosqlite.connect(path, isolation_level=None))
            await _configure(writer)

            async def readers(count: int) -> list[Reader]:
                opened = []
                for _ in range(count):
                    connection = await stack.enter_async_context(
                        aiosqlite.connect(path, isolation_level=None)
                    )
                    await _configure(connection)
                    await connection.execute("PRAGMA query_only = ON")
                    opened.append(await Reader.of(connection))
                return opened

            async with writer.execute("SELECT store_id FROM identity") as cursor:
                row = await cursor.fetchone()
            assert row is not None
            yield cls(
                row[0],
                writer,
                readers=Lane(await readers(_READERS)),
                scanners=Lane(await readers(_SCANNERS), SCAN_BOUNDS),
                log_readers=Lane(await readers(_LOG_READERS)),
            )

    def on_commit(self, listener: Callable[[Sequence[Event]], None]) -> None:
        """Calls `listener` with the events of every transaction, in commit order, once they are on disk."""
        self._listeners.append(listener)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Session]:
        """The one writer: committed where the block ends, rolled back where it raises. Hold it briefly."""
        async with self._writing:
            session = Session(self._writer, self.store_id)
            try:
                await self._writer.execute("BEGIN IMMEDIATE")
                yield session
            except BaseException:
                await _to_the_end(self._writer.rollback())
                raise
            await _to_the_end(self._commit(session))

    @asynccontextmanager
    async def snapshot(self) -> AsyncIterator[Session]:
        """A consistent view of what is committed, for reading only. Hold it briefly: there are few. What
        reads much takes a `scan`.
        """
        async with self._reading(self._readers) as session:
            yield session

    @asynccontextmanager
    async def scan(self, reader: str) -> AsyncIterator[Session]:
        """As `snapshot`, for what reads much: on connections of its own, so that nothing else waits for it.

        `reader` is who reads: each in turn gets a connection. Raises ResourceExhaustedError (reason
        TOO_MANY_READS) where too many of this reader's wait already, or none was free in time.
        """
        async with self._reading(self._scanners, reader) as session:
            yield session

    async def events_after(self, number: int, *, job_id: str | None, limit: int) -> list[Event]:
        """At most `limit` events beyond `number`, of one job or of all, in order."""
        async with self._reading(self._log_readers) as reading:
            return await reading.events.after(number, job_id=job_id, limit=limit)

    async def newest_events(
        self, job_id: str, *, kinds: Collection[str], limit: int, before: int | None = None
    ) -> list[Event]:
        """At most `limit` of the newest events of these kinds of a job, newest first; those numbered below
        `before`, where it is given.
        """
        async with self._reading(self._log_readers) as reading:
            return await reading.events.newest_of(job_id, kinds=kinds, limit=limit, before=before)

    async def newest_event(self) -> int:
        """Number of the newest event; 0 where there is none."""
        async with self.snapshot() as reading:
            return await reading.events.newest()

    async def last_status_event(self, job_id: str) -> tuple[int, JobStatus] | None:
        """Number and status of the job's newest status event; None where the job is not known."""
        async with self.snapshot() as reading:
            return await reading.events.last_status(job_id)

    @asynccontextmanager
    async def _reading(self, lane: Lane, turn_of: str = "") -> AsyncIterator[Session]:
        reader = await lane.take(turn_of)
        try:
            try:
                await reader.connection.execute("BEGIN")
                yield Session(reader.connection, self.store_id)
            except BaseException:
                # Nobody waits for what it was asked, and asked at once it may have been much.
                reader.abandoned = True
                raise
            finally:
                await _to_the_end(reader.connection.rollback())
        finally:
            reader.abandoned = False
            lane.give_back(reader)

    async def _commit(self, session: Session) -> None:
        try:
            await self._writer.commit()
        except BaseException:
            await self._writer.rollback()
            raise
        if session.events.appended:
            for listener in self._listeners:
                listener(session.events.appended)


async def _configure(connection: aiosqlite.Connection) -> None:
    for pragma in (
        "journal_mode = WAL",
        "synchronous = FULL",
        f"busy_timeout = {_BUSY_TIMEOUT_MS}",
        "foreign_keys = ON",
    ):
        await connection.execute(f"PRAGMA {pragma}")


async def _to_the_end(work: Awaitable[Result]) -> Result:
    # A cancelled caller must not leave a transaction open, nor a commit without its events told.
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise
