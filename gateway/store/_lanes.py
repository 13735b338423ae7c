"""Lanes of connections that read: who waits in one does not hold up another."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import aiosqlite

from plaudit.errors import ResourceExhaustedError


@dataclass(slots=True, eq=False)
class Reader:
    """A connection that reads. While it is `abandoned`, what runs on it and what was asked of it ends early,
    with an sqlite3.OperationalError.
    """

    connection: aiosqlite.Connection
    abandoned: bool = False

    @classmethod
    async def of(cls, connection: aiosqlite.Connection) -> Reader:
        """The reader of a connection that was opened for it."""
        reader = cls(connection)
        # Rather than sqlite3_interrupt, which ends only what runs, and not what was asked after it.
        await connection.set_progress_handler(lambda: int(reader.abandoned), _LOOK_AFTER_INSTRUCTIONS)
        return reader


@dataclass(frozen=True, slots=True)
class Bounds:
    """How many of one reader may wait in a lane, and each for how long."""

    most_waiting: int
    longest_wait_seconds: float


class Lane:
    """Readers that are taken and given back. Who waits gets one in turn: of those that ask for the same
    `turn_of` the first, and these themselves one after the other, so that many of one hold up no other's.
    """

    def __init__(self, readers: Sequence[Reader], bounds: Bounds | None = None) -> None:
        """No `bounds`: all wait as long as it takes."""
        self._free = list(readers)
        self._bounds = bounds
        self._turns: dict[str, deque[asyncio.Future[Reader]]] = {}

    @property
    def free(self) -> int:
        """How many readers nobody has."""
        return len(self._free)

    @property
    def waiting(self) -> int:
        """How many wait for a reader."""
        return sum(len(turn) for turn in self._turns.values())

    async def take(self, turn_of: str = "") -> Reader:
        """A reader, which is to be given back. Raises ResourceExhaustedError (reason TOO_MANY_READS) where
        the bounds are reached.
        """
        if self._free:
            return self._free.pop()
        turn = self._turns.setdefault(turn_of, deque())
        if self._bounds and len(turn) >= self._bounds.most_waiting:
            raise _too_many(f"{len(turn)} requests like this one wait already")
        place: asyncio.Future[Reader] = asyncio.get_running_loop().create_future()
        turn.append(place)
        seconds = self._bounds.longest_wait_seconds if self._bounds else None
        try:
            async with asyncio.timeout(seconds):
                return await place
        except BaseException as error:
            if place.done() and not place.cancelled():
                self.give_back(place.result())
            else:
                self._leave(turn_of, place)
            if isinstance(error, TimeoutError):
                raise _too_many(f"others like it were read for {seconds:g} s") from None
            raise

    def give_back(self, reader: Reader) -> None:
        """Hands the reader to who is next, if anybody waits."""
        while self._turns:
            turn_of, turn = next(iter(self._turns.items()))
            place = turn.popleft()
            del self._turns[turn_of]
            if turn:
                self._turns[turn_of] = turn
            # One that was cancelled just now has not come to leave yet.
            if not place.done():
                place.set_result(reader)
                return
        self._free.append(reader)

    def _leave(self, turn_of: str, place: asyncio.Future[Reader]) -> None:
        turn = self._turns.get(turn_of, deque())
        if place in turn:
            turn.remove(place)
            if not turn:
                del self._turns[turn_of]


def _too_many(why: str) -> ResourceExhaustedError:
    return ResourceExhaustedError(
        f"the gateway reads as much at once as it can, and {why}; ask again in {_RETRY_AFTER_SECONDS:g} s, "
        "one request after the other, or for less (fewer keys, fewer points)",
        reason="TOO_MANY_READS",
        retry_after=_RETRY_AFTER_SECONDS,
    )


SCAN_BOUNDS: Final = Bounds(most_waiting=64, longest_wait_seconds=10.0)

_LOOK_AFTER_INSTRUCTIONS: Final = 5000
"""Of SQLite's machine, well under a millisecond's; to look takes Python's lock."""
_RETRY_AFTER_SECONDS: Final = 2.0
