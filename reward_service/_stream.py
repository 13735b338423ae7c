"""The server's side of one Score stream: what goes out, in which order, and when it ends."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final, TypeAlias

from plaudit.errors import UnavailableError
from plaudit.types.scoring import Failed
from reward_service._work import Results, Work

MAX_RESULTS_PER_FRAME: Final = 256
"""With texts of 4 KiB that stays below gRPC's default limit of 4 MiB for a message."""

_MAX_WAITING_FRAMES: Final = 256
_MAX_ANSWERED_IDS: Final = 65_536


@dataclass(frozen=True, slots=True)
class Opened:
    """Confirms a session."""

    window: int
    retained_batch_ids: Sequence[str]


@dataclass(frozen=True, slots=True)
class Done:
    """Ends a batch."""

    batch_id: str
    scored_count: int
    not_applicable_count: int
    failed_count: int


@dataclass(frozen=True, slots=True)
class Bundle:
    """Results that were ready together, and the batches that end with them."""

    results: Sequence[Results]
    done: Sequence[Done] = ()
    allows_plain: bool = False
    """Whether the client reads plain scores of a reward together."""


@dataclass(frozen=True, slots=True)
class Rejected:
    """Refuses a batch."""

    batch_id: str
    failure: Failed


@dataclass(frozen=True, slots=True)
class WindowChanged:
    """A new window."""

    window: int


@dataclass(frozen=True, slots=True)
class Draining:
    """The server goes away; `grace` is in seconds."""

    grace: float


Frame: TypeAlias = Opened | Bundle | Done | Rejected | WindowChanged | Draining


class Stream:
    """What one stream of a session sends.

    Results wait as (work, index) pairs, so that what is not sent costs next to nothing, and there are never
    more of them than the window admits. A batch is on the stream from `take` until its `done`.
    """

    def __init__(self, opened: Opened, *, bundles_done: bool = False, allows_plain: bool = False) -> None:
        """`bundles_done`: the client reads in `Results` which batches are done. `allows_plain`: of Bundle."""
        self._opened = opened
        self._bundles_done = bundles_done
        self._allows_plain = allows_plain
        self.largest_window = opened.window
        self._results: list[tuple[Work, Sequence[int]]] = []
        self._done: list[Done] = []
        self._frames: list[Frame] = []
        self._unfinished: set[str] = set()
        # Ids of batches that were answered in full on this stream, and must not be answered on it again even
        # when their results are no longer kept.
        self._answered: OrderedDict[str, int] = OrderedDict()
        self._half_closed = False
        self._draining: UnavailableError | None = None
        self._error: Exception | None = None
        self._wake = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()

    def carries(self, batch_id: str) -> bool:
        """Whether results of the batch were sent, or will be, on this stream."""
        return batch_id in self._unfinished or batch_id in self._answered

    def fingerprint_of(self, batch_id: str) -> int | None:
        """Fingerprint of a batch that was answered in full on this stream."""
        return self._answered.get(batch_id)

    def take(self, work: Work) -> None:
        """Puts a batch on the stream, with the results that it has."""
        self._unfinished.add(work.batch_id)
        recorded = work.recorded()
        if recorded:
            self.add_results(work, recorded)

    def add_results(self, work: Work, indexes: Sequence[int]) -> None:
        """Sends results of a batch that is on the stream, and `done` where there are no more to come."""
        self._results.append((work, indexes))
        if not work.open_count:
            self._unfinished.remove(work.batch_id)
            self._answered[work.batch_id] = work.fingerprint
            if len(self._answered) > _MAX_ANSWERED_IDS:
                self._answered.popitem(last=False)
            self._done.append(
                Done(work.batch_id, work.scored_count, work.not_applicable_count, work.failed_count)
            )
        self._wake.set()

    def reject(self, batch_id: str, failure: Failed) -> None:
        """Refuses a batch."""
        self._send(Rejected(batch_id, failure))

    def change_window(self, window: int) -> None:
        """Announces another window."""
        self.largest_window = max(self.largest_window, window)
        self._send(WindowChanged(window))

    def drain(self, grace: float, error: UnavailableError) -> None:
        """Announces the end; with `error` the stream ends when all that it carries is done."""
        self._draining = error
        self._send(Draining(grace))

    def half_close(self) -> None:
        """No more batches come; the stream ends when all that it carries is done."""
        self._half_closed = True
        self._wake.set()

    def end(self, error: Exception) -> None:
        """Ends the stream with `error`, now."""
        self._error = self._error or error
        self._wake.set()
        self._room.set()

    async def room(self) -> None:
        """Waits while the client does not read what it is sent, so that what waits stays bounded."""
        await self._room.wait()

    async def frames(self) -> AsyncIterator[Frame]:
        """The frames to send. Raises the error with which the stream ends."""
        yield self._opened
        while True:
            if self._error is not None:
                raise self._error
            if self._results or self._frames:
                results, self._results = self._results, []
                done, self._done = self._done, []
                frames, self._frames = self._frames, []
                # `done` follows the results that it closes, also where those take several frames.
                apart: list[Frame] = []
                if not self._bundles_done:
                    apart, done = [*done], []
                for frame in chain(_bundled(results, done, self._allows_plain), apart, frames):
                    yield frame
                    if self._error is not None:
                        raise self._error
                self._room.set()
            elif not self._unfinished and self._half_closed:
                return
            elif not self._unfinished and self._draining is not None:
                raise self._draining
            else:
                await self._wake.wait()
                self._wake.clear()
                # One turn of the loop: what becomes ready together travels together.
                await asyncio.sleep(0)

    def _send(self, frame: Frame) -> None:
        self._frames.append(frame)
        if len(self._frames) >= _MAX_WAITING_FRAMES:
            self._room.clear()
        self._wake.set()


def _bundled(
    results: Sequence[tuple[Work, Sequence[int]]], done: Sequence[Done], allows_plain: bool
) -> Iterator[Bundle]:
    """Frames of at most MAX_RESULTS_PER_FRAME results, the last one with `done`.

    Each is made when it is about to be sent.
    """
    bundle: list[Results] = []
    size = 0
    for work, indexes in results:
        begin = 0
        while begin < len(indexes):
            if size == MAX_RESULTS_PER_FRAME:
                yield Bundle(bundle, allows_plain=allows_plain)
                bundle, size = [], 0
            portion = indexes[begin : begin + MAX_RESULTS_PER_FRAME - size]
            bundle.extend(work.hand_over(portion))
            size += len(portion)
            begin += len(portion)
    if bundle:
        yield Bundle(bundle, done, allows_plain)
