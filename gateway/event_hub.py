"""The hub from which readers pull events: the newest from memory, older ones from the log."""

from __future__ import annotations

import asyncio
import bisect
import contextlib
import math
import re
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Protocol

from gateway.events import (
    KINDS,
    Alert,
    AttemptStarted,
    Bookmark,
    CheckpointSaved,
    Event,
    LogLine,
    StatusChanged,
    cursor_of,
)
from gateway.pages import Page, page_size
from plaudit.errors import (
    FieldViolation,
    InvalidArgumentError,
    NotFoundError,
    OutOfRangeError,
    UnavailableError,
)
from plaudit.types.statuses import JobStatus
from plaudit.types.validation import shown


class EventLog(Protocol):
    """Where events are kept, and read from by those who lag behind the newest ones."""

    store_id: str

    async def events_after(self, number: int, *, job_id: str | None, limit: int) -> list[Event]:
        """At most `limit` events beyond `number`, of one job or of all, in order."""
        ...

    async def newest_events(
        self, job_id: str, *, kinds: Collection[str], limit: int, before: int | None = None
    ) -> list[Event]:
        """At most `limit` of the newest events of these kinds of a job, newest first; those numbered below
        `before`, where it is given.
        """
        ...

    async def newest_event(self) -> int:
        """Number of the newest event; 0 where there is none."""
        ...

    async def last_status_event(self, job_id: str) -> tuple[int, JobStatus] | None:
        """Number and status of the job's newest status event; None where the job is not known."""
        ...


class EventHub:
    """Hands out stored events: each reader pulls at its own pace, so a slow one costs nobody anything.

    Readers are woken together, and the more there are, the more seldom: what was committed meanwhile reaches
    each of them at once.
    """

    def __init__(
        self, log: EventLog, newest: int, *, tail_length: int = 4096, bookmark_seconds: float = 10.0
    ) -> None:
        """`newest` is the log's newest number; `tail_length` how many recent events are shared in memory."""
        self._log = log
        self._tail = _Tail(newest, tail_length)
        self._bookmark_seconds = bookmark_seconds
        self._news = asyncio.Event()
        self._readers = 0
        self._woken_at = -math.inf
        self._waking: asyncio.TimerHandle | None = None
        self._ticking: asyncio.TimerHandle | None = None
        self._closed = False

    def publish(self, events: Sequence[Event]) -> None:
        """Tells readers of events that were committed, in commit order."""
        self._tail.extend(events)
        if self._waking is None:
            loop = asyncio.get_running_loop()
            pause = min(self._readers * _PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS)
            self._waking = loop.call_at(max(loop.time(), self._woken_at + pause), self._wake)

    def close(self) -> None:
        """Ends every reader, and refuses new ones, with UnavailableError."""
        self._closed = True
        for timer in (self._waking, self._ticking):
            if timer is not None:
                timer.cancel()
        self._news.set()

    async def watch(
        self, job_id: str | None, after_cursor: str = "", kinds: Collection[str] = ()
    ) -> AsyncIterator[Event]:
        """As `watch_together`, one event after the other."""
        return _one_by_one(await self.watch_together(job_id, after_cursor, kinds))

    async def watch_together(
        self, job_id: str | None, after_cursor: str = "", kinds: Collection[str] = ()
    ) -> AsyncGenerator[Sequence[Event], None]:
        """Checks the request, then returns the events, those that are there already together:
        `async for events in await hub.watch_together(...)`.

        With a `job_id`: its events, from the first where the cursor is empty; ends after the event of a
        terminal status that no later status follows. With None: the events of all jobs, only new ones where
        the cursor is empty; never ends. `kinds` (words of KINDS) filters; empty is all. A Bookmark comes
        about every 10 s in which nothing else did, whatever the filter.

        Raises NotFoundError (job), InvalidArgumentError (after_cursor, kinds), OutOfRangeError (reason
        CURSOR_EXPIRED); while iterating UnavailableError once the gateway drains: resume by cursor.
        """
        violations = [
            FieldViolation("kinds", f"{shown(kind)} is no kind of event; one of {', '.join(KINDS.values())}")
            for kind in kinds
            if kind not in KINDS.values()
        ]
        if after_cursor and not _CURSOR.fullmatch(after_cursor):
            violations.append(
                FieldViolation(
                    "after_cursor",
                    f"{shown(after_cursor)} is no cursor; send that of an event that was received, or none",
                )
            )
        if violations:
            raise InvalidArgumentError(violations)
        if job_id is not None:
            await self._require(job_id)
        if after_cursor:
            start = await self._position(after_cursor)
        else:
            start = self._tail.newest if job_id is None else 0
        return self._follow(job_id, start, frozenset(kinds))

    async def newest(
        self, job_id: str, *, kinds: Collection[str], limit: int, page_token: str = ""
    ) -> list[Event]:
        """At most `limit` of the newest events of these kinds of a job, newest first; where there is a
        `page_token`, those before the event with this cursor. Raises NotFoundError (job),
        InvalidArgumentError (page_token).
        """
        await self._require(job_id)
        store_id, _, digits = page_token.rpartition("-")
        if page_token and (not _CURSOR.fullmatch(page_token) or store_id != self._log.store_id):
            raise InvalidArgumentError.of(
                "page_token",
                f"{shown(page_token)} is not the id of an event of this store; list again from the start",
            )
        before = int(digits) if page_token else None
        return await self._log.newest_events(job_id, kinds=kinds, limit=limit, before=before)

    async def page(self, job_id: str, *, limit: int = 0, page_token: str = "") -> Page[Event]:
        """What happened to a job but for its steps, newest first. `limit` 0 is 50, above 500 is 500.
        `page_token` is the cursor of the last event of the page before, which is also that page's
        `next_page_token`. Raises as `newest`, and InvalidArgumentError (page_size).
        """
        size = page_size(limit, _DEFAULT_PAGE)
        found = await self.newest(job_id, kinds=_TOLD_KINDS, limit=size + 1, page_token=page_token)
        return Page(found[:size], found[size - 1].cursor if len(found) > size else "")

    async def past(self, job_id: str) -> AsyncIterator[Event]:
        """The events of a job that are stored by now, oldest first. Raises NotFoundError at the first."""
        await self._require(job_id)
        newest, number = self._tail.newest, 0
        while events := await self._log.events_after(number, job_id=job_id, limit=_PAGE):
            for event in events:
                if event.number > newest:
                    return
                yield event
            number = events[-1].number

    async def _require(self, job_id: str) -> None:
        if await self._log.last_status_event(job_id) is None:
            raise NotFoundError(f"there is no training job {shown(job_id)}; list the jobs to see their ids")

    async def _position(self, cursor: str) -> int:
        store_id, _, digits = cursor.rpartition("-")
        number = int(digits)
        known = store_id == self._log.store_id and (
            number <= self._tail.newest or number <= await self._log.newest_event()
        )
        if not known:
            raise OutOfRangeError(
                f"the cursor {shown(cursor)} is not of this store, or beyond its newest event; read the "
                "job and its metrics, then watch without a cursor",
                reason="CURSOR_EXPIRED",
            )
        return number

    async def _follow(
        self, job_id: str | None, number: int, kinds: frozenset[str]
    ) -> AsyncGenerator[Sequence[Event], None]:
        if job_id is not None and await self._is_over(job_id, number):
            return
        loop = asyncio.get_running_loop()
        sent_at = loop.time()
        self._readers += 1
        if self._ticking is None:
            self._tick()
        try:
            while True:
                if self._closed:
                    raise UnavailableError(
                        "the gateway is stopping; watch again from the cursor of the last event",
                        reason="DRAINING",
                        retry_after=_RETRY_AFTER_SECONDS,
                    )
                # Taken before the events are read: what is told meanwhile wakes the wait below at once.
                news = self._news
                if number < self._tail.newest:
                    read = self._tail.read(number, job_id, kinds)
                    if read is None:
                        read = await self._stored(number, job_id, kinds)
                    end = await self._end(job_id, read) if read.terminal_places else None
                    wanted = read.wanted if end is None else _wanted(read.events[:end], kinds)
                    if wanted:
                        yield wanted
                        sent_at = loop.time()
                    if end is not None:
                        return
                    number = read.up_to
                    if wanted:
                        continue
                if loop.time() - sent_at >= self._bookmark_seconds:
                    if job_id is not None and await self._is_over(job_id, number):
                        return
                    cursor = cursor_of(self._log.store_id, number)
                    yield [Event(cursor, number, datetime.now(UTC), job_id or "", Bookmark())]
                    sent_at = loop.time()
                elif number >= self._tail.newest:
                    await news.wait()
        finally:
            self._readers -= 1

    async def _end(self, job_id: str | None, read: _Read) -> int | None:
        """How many of the events there are up to the end of the job; None: its end is not among them."""
        if job_id is not None:
            for place in read.terminal_places:
                if await self._is_over(job_id, read.events[place].number):
                    return place + 1
        return None

    async def _stored(self, number: int, job_id: str | None, kinds: frozenset[str]) -> _Read:
        """What lies beyond `number`, where memory does not reach that far."""
        newest = self._tail.newest
        events = await self._log.events_after(number, job_id=job_id, limit=_TOGETHER)
        last = events[-1].number if events else 0
        return _read(events, last if len(events) == _TOGETHER else max(last, newest), kinds)

    async def _is_over(self, job_id: str, number: int) -> bool:
        last = await self._log.last_status_event(job_id)
        # None: the job was deleted meanwhile.
        return last is None or (last[0] <= number and last[1].is_terminal)

    def _tick(self) -> None:
        """Wakes readers for their bookmarks: one timer for all, since one for each wait would cost each."""
        self._wake()
        self._ticking = None
        if self._readers > 0 and not self._closed:
            loop = asyncio.get_running_loop()
            self._ticking = loop.call_later(self._bookmark_seconds / _TICKS, self._tick)

    def _wake(self) -> None:
        if self._waking is not None:
            self._waking.cancel()
            self._waking = None
        self._woken_at = asyncio.get_running_loop().time()
        self._news.set()
        self._news = asyncio.Event()


@dataclass(frozen=True, slots=True)
class _Read:
    """The next events of one job, or of all, up to `up_to`; `wanted` are those of the reader's kinds."""

    events: Sequence[Event]
    wanted: Sequence[Event]
    terminal_places: Sequence[int]
    """Where in `events` a job may have ended."""
    up_to: int


def _read(events: Sequence[Event], up_to: int, kinds: frozenset[str]) -> _Read:
    ends = tuple(place for place, event in enumerate(events) if _is_terminal(event))
    return _Read(events, _wanted(events, kinds), ends, up_to)


def _wanted(events: Sequence[Event], kinds: frozenset[str]) -> Sequence[Event]:
    return [event for event in events if event.kind in kinds] if kinds else events


class _Tail:
    """The newest events, in memory, shared by all readers."""

    def __init__(self, newest: int, length: int) -> None:
        self._length = length
        self._events: list[Event] = []
        self._complete_after = newest
        # Readers that keep up all stand at the same event, so that a thousand of them ask for the same.
        self._reads: dict[tuple[int, str | None, frozenset[str]], _Read] = {}
        self.newest = newest

    def extend(self, events: Sequence[Event]) -> None:
        self._reads.clear()
        self._events.extend(events)
        self.newest = self._events[-1].number
        # Cut by half at a time: cutting at every event would move the whole list every time.
        if len(self._events) > 2 * self._length:
            dropped = len(self._events) - self._length
            self._complete_after = self._events[dropped - 1].number
            del self._events[:dropped]

    def read(self, number: int, job_id: str | None, kinds: frozenset[str]) -> _Read | None:
        """What lies beyond `number`; None where some of it is no longer here."""
        if number < self._complete_after:
            return None
        asked = (number, job_id, kinds)
        read = self._reads.get(asked)
        if read is None:
            start = bisect.bisect_right(self._events, number, key=lambda event: event.number)
            recent = self._events[start : start + _TOGETHER]
            of_job = recent if job_id is None else [event for event in recent if event.job_id == job_id]
            read = _read(of_job, recent[-1].number if recent else number, kinds)
            if len(self._reads) < _MOST_READS:
                self._reads[asked] = read
        return read


async def _one_by_one(batches: AsyncGenerator[Sequence[Event], None]) -> AsyncIterator[Event]:
    async with contextlib.aclosing(batches):
        async for events in batches:
            for event in events:
                yield event


def _is_terminal(event: Event) -> bool:
    return isinstance(event.payload, StatusChanged) and event.payload.status.is_terminal


_PAGE: Final = 500


_TOGETHER: Final = 50
"""Most events that a reader holds while they are sent."""


_MOST_READS: Final = 256
"""That are remembered, between two events."""
_TICKS: Final = 4
"""For each time after which a quiet reader gets a bookmark."""


_PAUSE_SECONDS: Final = 1e-4
"""For each reader, between two wakes: some three times what a delivery costs, so that a loop full of readers
has time for all else."""


_LONGEST_PAUSE_SECONDS: Final = 0.2


_DEFAULT_PAGE: Final = 50


_TOLD_KINDS: Final = tuple(
    KINDS[kind] for kind in (StatusChanged, CheckpointSaved, AttemptStarted, Alert, LogLine)
)


_RETRY_AFTER_SECONDS: Final = 1.0


_CURSOR: Final = re.compile(r"[0-9a-f]{8}-(0|[1-9][0-9]{0,17})")
